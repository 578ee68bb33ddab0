#include "autograd/layout.h"

#include <algorithm>

#include "autograd/node.h"
#include "framework/core/promote.h"
#include "ops/layout.h"

namespace capstan {

using autograd::BackwardContext;
using autograd::needs_grad;
using autograd::record;
using autograd::requires_grad;
using autograd::Saved;

namespace {

// The number of inputs is known at run time only, so `record` does not serve.
class CatNode final : public autograd::Node {
 public:
  CatNode(const std::vector<Tensor>& tensors, int axis, Device place)
      : Node("cat", place, 1), axis_(axis) {
    edges_.reserve(tensors.size());
    sizes_.reserve(tensors.size());
    for (const Tensor& tensor : tensors) {
      edges_.push_back(autograd::edge_of(tensor));
      sizes_.push_back(tensor.size(axis));
    }
  }
  [[nodiscard]] std::span<autograd::Edge> edges() noexcept override { return edges_; }
  void release_saved() override {}

  void backward(BackwardContext& context) override {
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      const std::int64_t end = begin + sizes_[i];
      if (context.needs(i)) context.set(i, context.grad().slice(axis_, begin, end));
      begin = end;
    }
  }

 private:
  std::vector<autograd::Edge> edges_;
  std::vector<std::int64_t> sizes_;
  int axis_;
};

// Gradients of `gather` and `index_select` are linear in g, so their own backward is the forward.
[[nodiscard]] Tensor gather_backward(const Tensor& g, int axis, const Tensor& index,
                                     const Shape& x_shape) {
  Tensor dx = ops::gather_backward(g, axis, index, x_shape);
  if (needs_grad(g)) {
    record(dx, "gather_backward", {&g}, [axis, index = Saved(index)](BackwardContext& context) {
      context.set(0, gather(context.grad(), axis, index.get(context)));
    });
  }
  return dx;
}

[[nodiscard]] Tensor index_select_backward(const Tensor& g, int axis, const Tensor& index,
                                           const Shape& x_shape) {
  Tensor dx = ops::index_select_backward(g, axis, index, x_shape);
  if (needs_grad(g)) {
    record(dx, "index_select_backward", {&g},
           [axis, index = Saved(index)](BackwardContext& context) {
             context.set(0, index_select(context.grad(), axis, index.get(context)));
           });
  }
  return dx;
}

// Empty if they are.
[[nodiscard]] std::vector<Tensor> in_one_dtype(const std::vector<Tensor>& tensors) {
  if (tensors.empty()) return {};
  DType dtype = tensors.front().dtype();
  for (const Tensor& tensor : tensors) dtype = promote_types(dtype, tensor.dtype());
  if (std::ranges::all_of(tensors, [&](const Tensor& x) { return x.dtype() == dtype; })) return {};
  std::vector<Tensor> converted;
  converted.reserve(tensors.size());
  for (const Tensor& tensor : tensors) converted.push_back(tensor.to(dtype));
  return converted;
}

}  // namespace

Tensor cat(const std::vector<Tensor>& tensors, int axis, Where where) {
  const CallSite site(where);
  if (const std::vector<Tensor> alike = in_one_dtype(tensors); !alike.empty()) {
    return cat(alike, axis, where);
  }
  Tensor y = ops::cat(tensors, axis);
  if (grad_enabled() && std::ranges::any_of(tensors, requires_grad)) {
    autograd::detail::attach(y, make_ref<CatNode>(tensors, axis, y.device()), 0);
  }
  return y;
}

Tensor gather(const Tensor& x, int axis, const Tensor& index, Where where) {
  const CallSite site(where);
  Tensor y = ops::gather(x, axis, index);
  if (needs_grad(x)) {
    record(y, "gather", {&x},
           [axis, index = Saved(index), x_shape = x.shape()](BackwardContext& context) {
             context.set(0, gather_backward(context.grad(), axis, index.get(context), x_shape));
           });
  }
  return y;
}

Tensor index_select(const Tensor& x, int axis, const Tensor& index, Where where) {
  const CallSite site(where);
  Tensor y = ops::index_select(x, axis, index);
  if (needs_grad(x)) {
    record(y, "index_select", {&x},
           [axis, index = Saved(index), x_shape = x.shape()](BackwardContext& context) {
             context.set(0,
                         index_select_backward(context.grad(), axis, index.get(context), x_shape));
           });
  }
  return y;
}

Tensor one_hot(const Tensor& labels, std::int64_t classes, DType dtype, Where where) {
  const CallSite site(where);
  return ops::one_hot(labels, classes, dtype);
}

}  // namespace capstan

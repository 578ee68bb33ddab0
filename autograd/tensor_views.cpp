#include <algorithm>

#include "autograd/broadcast.h"
#include "autograd/node.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/view.h"
#include "ops/elementwise.h"

namespace capstan {

using autograd::BackwardContext;
using autograd::needs_grad;
using autograd::record;

namespace {

// Lets writes in place find out whether others look at the same memory with a history of their own.
// Leaves need no family: writes to them are refused anyway.
void join_family(const Tensor& view, const Tensor& x) {
  if (x.is_leaf()) return;
  Ref<RefCounted>& family = x.impl()->view_family;
  if (!family) family = make_ref<RefCounted>();
  view.impl()->view_family = family;
}

template <typename Backward>
[[nodiscard]] Tensor recorded_view(const char* name, const Tensor& x, Tensor y, Backward backward) {
  if (y.is_same(x)) return y;
  y.impl()->is_view = true;
  if (needs_grad(x)) {
    join_family(y, x);
    record(y, name, {&x}, std::move(backward));
  }
  return y;
}

// The gradient of a view that only regroups axes.
[[nodiscard]] auto back_to(const Shape& shape) {
  return [shape](BackwardContext& context) { context.set(0, context.grad().reshape(shape)); };
}

// Puts g where the slice was taken, zeros elsewhere.
[[nodiscard]] Tensor slice_backward(const Tensor& g, const Shape& shape, int axis,
                                    std::int64_t begin, std::int64_t end, std::int64_t step) {
  Tensor dx = zeros(shape, {.dtype = g.dtype(), .device = g.device()});
  ops::copy(view::slice(dx, axis, begin, end, step), g);
  if (needs_grad(g)) {
    record(dx, "slice_backward", {&g}, [axis, begin, end, step](BackwardContext& context) {
      context.set(0, context.grad().slice(axis, begin, end, step));
    });
  }
  return dx;
}

[[nodiscard]] Tensor select_backward(const Tensor& g, const Shape& shape, int axis,
                                     std::int64_t index) {
  Tensor dx = zeros(shape, {.dtype = g.dtype(), .device = g.device()});
  ops::copy(view::select(dx, axis, index), g);
  if (needs_grad(g)) {
    record(dx, "select_backward", {&g}, [axis, index](BackwardContext& context) {
      context.set(0, context.grad().select(axis, index));
    });
  }
  return dx;
}

}  // namespace

Tensor Tensor::reshape(const Shape& wanted, Where where) const {
  const CallSite site(where);
  if (std::optional<Tensor> same_memory = view::reshape(*this, wanted)) {
    return recorded_view("reshape", *this, std::move(*same_memory), back_to(shape()));
  }
  Tensor y = *view::reshape(ops::contiguous(*this), wanted);
  if (needs_grad(*this)) record(y, "reshape", {this}, back_to(shape()));
  return y;
}

Tensor Tensor::flatten(int first, int last, Where where) const {
  const CallSite site(where);
  if (rank() == 0) return reshape({1});
  const int begin = normalize_axis(first, rank(), "flatten");
  const int end = normalize_axis(last, rank(), "flatten");
  CAPSTAN_CHECK(begin <= end, ValueError, "flatten: first must not lie after last, got axes ",
                first, " and ", last, " of shape ", shape(), "; swap them");
  Shape flat;
  std::int64_t joined = 1;
  for (int axis = 0; axis < rank(); ++axis) {
    if (axis < begin || axis > end) {
      flat.push_back(size(axis));
      continue;
    }
    joined *= size(axis);
    if (axis == end) flat.push_back(joined);
  }
  return reshape(flat);
}

Tensor Tensor::transpose(int axis0, int axis1, Where where) const {
  const CallSite site(where);
  return recorded_view("transpose", *this, view::transpose(*this, axis0, axis1),
                       [axis0, axis1](BackwardContext& context) {
                         context.set(0, context.grad().transpose(axis0, axis1));
                       });
}

Tensor Tensor::t(Where where) const {
  const CallSite site(where);
  CAPSTAN_CHECK(rank() >= 2, ShapeError, "t: needs at least 2 axes, got shape ", shape(),
                "; make a column with unsqueeze(-1)");
  return transpose(-2, -1);
}

Tensor Tensor::permute(const Axes& axes, Where where) const {
  const CallSite site(where);
  return recorded_view("permute", *this, view::permute(*this, axes),
                       [axes](BackwardContext& context) {
                         const int count = axes.rank();
                         Axes inverse = Axes::filled(count, 0);
                         for (int i = 0; i < count; ++i) {
                           inverse[static_cast<int>(axes[i])] = i;
                         }
                         context.set(0, context.grad().permute(inverse));
                       });
}

Tensor Tensor::slice(int axis, std::int64_t begin, std::int64_t end, std::int64_t step,
                     Where where) const {
  const CallSite site(where);
  return recorded_view("slice", *this, view::slice(*this, axis, begin, end, step),
                       [shape = shape(), axis, begin, end, step](BackwardContext& context) {
                         context.set(0,
                                     slice_backward(context.grad(), shape, axis, begin, end, step));
                       });
}

Tensor Tensor::select(int axis, std::int64_t index, Where where) const {
  const CallSite site(where);
  return recorded_view("select", *this, view::select(*this, axis, index),
                       [shape = shape(), axis, index](BackwardContext& context) {
                         context.set(0, select_backward(context.grad(), shape, axis, index));
                       });
}

Tensor Tensor::expand(const Shape& wanted, Where where) const {
  const CallSite site(where);
  return recorded_view("expand", *this, view::expand(*this, wanted),
                       [shape = shape()](BackwardContext& context) {
                         context.set(0, autograd::sum_to(context.grad(), shape));
                       });
}

Tensor Tensor::squeeze(int axis, Where where) const {
  const CallSite site(where);
  return recorded_view("squeeze", *this, view::squeeze(*this, axis), back_to(shape()));
}

Tensor Tensor::squeeze(Where where) const {
  const CallSite site(where);
  return recorded_view("squeeze", *this, view::squeeze_all(*this), back_to(shape()));
}

Tensor Tensor::unsqueeze(int axis, Where where) const {
  const CallSite site(where);
  return recorded_view("unsqueeze", *this, view::unsqueeze(*this, axis), back_to(shape()));
}

}  // namespace capstan

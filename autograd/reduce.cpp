#include "autograd/reduce.h"

#include <algorithm>

#include "autograd/arithmetic.h"
#include "autograd/autocast_policy.h"
#include "autograd/node.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

namespace capstan {

using autograd::autocast;
using autograd::autocasts;
using autograd::BackwardContext;
using autograd::CastTo;
using autograd::needs_grad;
using autograd::record;
using autograd::Saved;

namespace {

// `shape` with the reduced axes kept at size 1.
[[nodiscard]] Shape kept_shape(const Shape& shape, const Axes& axes) {
  if (axes.empty()) return Shape::filled(shape.rank(), 1);
  Shape kept = shape;
  for (const std::int64_t axis : axes) kept[static_cast<int>(axis)] = 1;
  return kept;
}

// A view that repeats `g` along the reduced axes; nothing is copied.
[[nodiscard]] Tensor spread(const Tensor& g, const Shape& kept, const Shape& shape) {
  return (g.shape() == kept ? g : g.reshape(kept)).expand(shape);
}

[[nodiscard]] Tensor extreme(ReduceOp op, const char* name, const Tensor& x, const Axes& axes,
                             bool keepdim) {
  Tensor y = ops::reduce(op, x, axes, keepdim);
  if (needs_grad(x)) {
    record(y, name, {&x},
           [x = Saved(x), y = Saved::output(y), axes,
            kept = kept_shape(x.shape(), axes)](BackwardContext& context) {
             const Tensor values = x.get(context);
             const Tensor& g = context.grad();
             const Tensor hit = ops::cast(eq(values, y.get(context).reshape(kept)), g.dtype());
             const Tensor share = hit / ops::reduce(ReduceOp::sum, hit, axes, true);
             context.set(0, spread(g, kept, values.shape()) * share);
           });
  }
  return y;
}

}  // namespace

Tensor sum(const Tensor& x, const Axes& axes, bool keepdim, Where where) {
  const CallSite site(where);
  if (autocasts(CastTo::float32, x)) [[unlikely]] {
    return sum(autocast(CastTo::float32, x), axes, keepdim, where);
  }
  Tensor y = ops::reduce(ReduceOp::sum, x, axes, keepdim);
  if (needs_grad(x)) {
    record(y, "sum", {&x},
           [shape = x.shape(), kept = kept_shape(x.shape(), axes)](BackwardContext& context) {
             context.set(0, spread(context.grad(), kept, shape));
           });
  }
  return y;
}

Tensor mean(const Tensor& x, const Axes& axes, bool keepdim, Where where) {
  const CallSite site(where);
  if (autocasts(CastTo::float32, x)) [[unlikely]] {
    return mean(autocast(CastTo::float32, x), axes, keepdim, where);
  }
  Tensor y = ops::reduce(ReduceOp::mean, x, axes, keepdim);
  if (needs_grad(x)) {
    const std::int64_t count = x.numel() / std::max<std::int64_t>(y.numel(), 1);
    record(y, "mean", {&x},
           [shape = x.shape(), kept = kept_shape(x.shape(), axes),
            scale = 1.0 / static_cast<double>(count)](BackwardContext& context) {
             context.set(0, spread(context.grad() * scale, kept, shape));
           });
  }
  return y;
}

Tensor max(const Tensor& x, const Axes& axes, bool keepdim, Where where) {
  const CallSite site(where);
  return extreme(ReduceOp::max, "max", x, axes, keepdim);
}

Tensor min(const Tensor& x, const Axes& axes, bool keepdim, Where where) {
  const CallSite site(where);
  return extreme(ReduceOp::min, "min", x, axes, keepdim);
}

Tensor argmax(const Tensor& x, int axis, bool keepdim, Where where) {
  const CallSite site(where);
  return ops::argmax(x, axis, keepdim);
}

}  // namespace capstan

#include "autograd/pool.h"

#include "autograd/layout.h"
#include "autograd/node.h"

// All of these are linear once the indices are known: a gradient of a gradient is the operation
// itself again.
namespace capstan {

using autograd::BackwardContext;
using autograd::needs_grad;
using autograd::record;
using autograd::Saved;

namespace {

/// [batch, channels, height, width] as [batch, channels, height * width].
[[nodiscard]] Tensor planes(const Tensor& x) { return x.flatten(2); }

/// The elements of x that were the largest.
[[nodiscard]] Tensor pick(const Tensor& x, const Tensor& indices) {
  return gather(planes(x), 2, planes(indices)).reshape(indices.shape());
}

[[nodiscard]] Tensor max_backward(const Tensor& grad, const Tensor& indices, const Shape& x_shape,
                                  Size2d kernel, const MaxPoolOptions& options) {
  Tensor dx = ops::max_pool2d_backward(grad, indices, x_shape, kernel, options);
  if (needs_grad(grad)) {
    record(dx, "max_pool2d_backward", {&grad},
           [indices = Saved(indices)](BackwardContext& context) {
             context.set(0, pick(context.grad(), indices.get(context)));
           });
  }
  return dx;
}

[[nodiscard]] Tensor mean_backward(const Tensor& grad, const Shape& x_shape, Size2d kernel,
                                   const AvgPoolOptions& options) {
  Tensor dx = ops::avg_pool2d_backward(grad, x_shape, kernel, options);
  if (needs_grad(grad)) {
    record(dx, "avg_pool2d_backward", {&grad}, [kernel, options](BackwardContext& context) {
      context.set(0, avg_pool2d(context.grad(), kernel, options));
    });
  }
  return dx;
}

[[nodiscard]] Tensor adaptive_backward(const Tensor& grad, const Shape& x_shape) {
  Tensor dx = ops::adaptive_avg_pool2d_backward(grad, x_shape);
  if (needs_grad(grad)) {
    record(dx, "adaptive_avg_pool2d_backward", {&grad},
           [output = Size2d(grad.size(2), grad.size(3))](BackwardContext& context) {
             context.set(0, adaptive_avg_pool2d(context.grad(), output));
           });
  }
  return dx;
}

}  // namespace

MaxPool max_pool2d_with_indices(const Tensor& x, Size2d kernel, MaxPoolOptions options,
                                Where where) {
  const CallSite site(where);
  MaxPool pooled = ops::max_pool2d(x, kernel, options);
  if (needs_grad(x)) {
    record(pooled.y, "max_pool2d", {&x},
           [indices = Saved(pooled.indices), x_shape = x.shape(), kernel,
            options](BackwardContext& context) {
             context.set(
                 0, max_backward(context.grad(), indices.get(context), x_shape, kernel, options));
           });
  }
  return pooled;
}

Tensor max_pool2d(const Tensor& x, Size2d kernel, MaxPoolOptions options, Where where) {
  return max_pool2d_with_indices(x, kernel, options, where).y;
}

Tensor avg_pool2d(const Tensor& x, Size2d kernel, AvgPoolOptions options, Where where) {
  const CallSite site(where);
  Tensor y = ops::avg_pool2d(x, kernel, options);
  if (needs_grad(x)) {
    record(y, "avg_pool2d", {&x}, [x_shape = x.shape(), kernel, options](BackwardContext& context) {
      context.set(0, mean_backward(context.grad(), x_shape, kernel, options));
    });
  }
  return y;
}

Tensor adaptive_avg_pool2d(const Tensor& x, Size2d output, Where where) {
  const CallSite site(where);
  Tensor y = ops::adaptive_avg_pool2d(x, output);
  if (needs_grad(x)) {
    record(y, "adaptive_avg_pool2d", {&x}, [x_shape = x.shape()](BackwardContext& context) {
      context.set(0, adaptive_backward(context.grad(), x_shape));
    });
  }
  return y;
}

}  // namespace capstan

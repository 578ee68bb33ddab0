#include "ops/softmax.h"

#include "autograd/arithmetic.h"
#include "autograd/autocast_policy.h"
#include "autograd/loss.h"
#include "autograd/math.h"
#include "autograd/node.h"
#include "autograd/reduce.h"

// As in activations.cpp: fused kernels, unless the gradient is to be differentiated again.
namespace capstan {

using autograd::autocast;
using autograd::autocasts;
using autograd::BackwardContext;
using autograd::CastTo;
using autograd::needs_grad;
using autograd::record;
using autograd::Saved;

namespace {

[[nodiscard]] Tensor softmax_backward(const Tensor& g, const Tensor& y, int axis) {
  if (!grad_enabled()) return ops::softmax_backward(g, y, axis);
  return y * (g - sum(g * y, {axis}, true));
}

[[nodiscard]] Tensor log_softmax_backward(const Tensor& g, const Tensor& y, int axis) {
  if (!grad_enabled()) return ops::log_softmax_backward(g, y, axis);
  return g - exp(y) * sum(g, {axis}, true);
}

}  // namespace

Tensor softmax(const Tensor& x, int axis, Where where) {
  const CallSite site(where);
  if (autocasts(CastTo::float32, x)) [[unlikely]] {
    return softmax(autocast(CastTo::float32, x), axis, where);
  }
  Tensor y = ops::softmax(x, axis);
  if (needs_grad(x)) {
    record(y, "softmax", {&x}, [y = Saved::output(y), axis](BackwardContext& context) {
      context.set(0, softmax_backward(context.grad(), y.get(context), axis));
    });
  }
  return y;
}

Tensor log_softmax(const Tensor& x, int axis, Where where) {
  const CallSite site(where);
  if (autocasts(CastTo::float32, x)) [[unlikely]] {
    return log_softmax(autocast(CastTo::float32, x), axis, where);
  }
  Tensor y = ops::log_softmax(x, axis);
  if (needs_grad(x)) {
    record(y, "log_softmax", {&x}, [y = Saved::output(y), axis](BackwardContext& context) {
      context.set(0, log_softmax_backward(context.grad(), y.get(context), axis));
    });
  }
  return y;
}

}  // namespace capstan

#include <numbers>

#include "autograd/arithmetic.h"
#include "autograd/math.h"
#include "autograd/node.h"
#include "ops/elementwise.h"

// The fused backward kernels have no derivatives of their own, so where gradients are to be
// differentiated again the same formula is composed of functions that do.
namespace capstan {

using autograd::BackwardContext;
using autograd::needs_grad;
using autograd::record;
using autograd::Saved;

namespace {

// Does not depend on y but through its sign, so its own backward is the same function again.
[[nodiscard]] Tensor relu_backward(const Tensor& g, const Tensor& y) {
  Tensor dx = ops::binary(BinaryOp::relu_backward, g, y);
  if (needs_grad(g)) {
    record(dx, "relu_backward", {&g}, [y = Saved(y)](BackwardContext& context) {
      context.set(0, relu_backward(context.grad(), y.get(context)));
    });
  }
  return dx;
}

[[nodiscard]] Tensor tanh_backward(const Tensor& g, const Tensor& y) {
  return grad_enabled() ? g * (1 - square(y)) : ops::binary(BinaryOp::tanh_backward, g, y);
}

[[nodiscard]] Tensor sigmoid_backward(const Tensor& g, const Tensor& y) {
  return grad_enabled() ? g * (y * (1 - y)) : ops::binary(BinaryOp::sigmoid_backward, g, y);
}

[[nodiscard]] Tensor gelu_backward(const Tensor& g, const Tensor& x) {
  if (!grad_enabled()) return ops::binary(BinaryOp::gelu_backward, g, x);
  constexpr double kHalfSqrt2 = std::numbers::sqrt2 / 2.0;
  const Tensor distribution = (erf(x * kHalfSqrt2) + 1) * 0.5;
  const Tensor density = exp(square(x) * -0.5) * (kHalfSqrt2 * std::numbers::inv_sqrtpi);
  return g * (distribution + x * density);
}

}  // namespace

Tensor relu(const Tensor& x, Where where) {
  const CallSite site(where);
  Tensor y = ops::unary(UnaryOp::relu, x);
  if (needs_grad(x)) {
    record(y, "relu", {&x}, [y = Saved::output(y)](BackwardContext& context) {
      context.set(0, relu_backward(context.grad(), y.get(context)));
    });
  }
  return y;
}

Tensor gelu(const Tensor& x, Where where) {
  const CallSite site(where);
  Tensor y = ops::unary(UnaryOp::gelu, x);
  if (needs_grad(x)) {
    record(y, "gelu", {&x}, [x = Saved(x)](BackwardContext& context) {
      context.set(0, gelu_backward(context.grad(), x.get(context)));
    });
  }
  return y;
}

Tensor tanh(const Tensor& x, Where where) {
  const CallSite site(where);
  Tensor y = ops::unary(UnaryOp::tanh, x);
  if (needs_grad(x)) {
    record(y, "tanh", {&x}, [y = Saved::output(y)](BackwardContext& context) {
      context.set(0, tanh_backward(context.grad(), y.get(context)));
    });
  }
  return y;
}

Tensor sigmoid(const Tensor& x, Where where) {
  const CallSite site(where);
  Tensor y = ops::unary(UnaryOp::sigmoid, x);
  if (needs_grad(x)) {
    record(y, "sigmoid", {&x}, [y = Saved::output(y)](BackwardContext& context) {
      context.set(0, sigmoid_backward(context.grad(), y.get(context)));
    });
  }
  return y;
}

}  // namespace capstan

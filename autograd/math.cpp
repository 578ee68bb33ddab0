#include "autograd/math.h"

#include <numbers>

#include "autograd/arithmetic.h"
#include "autograd/autocast_policy.h"
#include "autograd/node.h"
#include "framework/tensor/factory.h"
#include "ops/elementwise.h"

namespace capstan {

using autograd::autocast;
using autograd::autocasts;
using autograd::BackwardContext;
using autograd::CastTo;
using autograd::needs_grad;
using autograd::record;
using autograd::Saved;

namespace {

// What Autocast computes in float32.
[[nodiscard]] bool is_delicate(UnaryOp op) {
  switch (op) {
    case UnaryOp::exp:
    case UnaryOp::expm1:
    case UnaryOp::log:
    case UnaryOp::log1p:
    case UnaryOp::reciprocal:
    case UnaryOp::rsqrt: return true;
    default: return false;
  }
}

[[nodiscard]] bool is_widened(UnaryOp op, const Tensor& x) {
  return autocasts(CastTo::float32, x) && is_delicate(op);
}

// y = op(x), with the gradient `slope(g, x)`.
template <typename Slope>
[[nodiscard]] Tensor from_input(UnaryOp op, const Tensor& x, const Where& where, Slope slope) {
  const CallSite site(where);
  if (is_widened(op, x)) [[unlikely]] {
    return from_input(op, autocast(CastTo::float32, x), where, slope);
  }
  Tensor y = ops::unary(op, x);
  if (needs_grad(x)) {
    record(y, ops::name_of(op), {&x}, [x = Saved(x), slope](BackwardContext& context) {
      context.set(0, slope(context.grad(), x.get(context)));
    });
  }
  return y;
}

// The same with the gradient `slope(g, y)`.
template <typename Slope>
[[nodiscard]] Tensor from_output(UnaryOp op, const Tensor& x, const Where& where, Slope slope) {
  const CallSite site(where);
  if (is_widened(op, x)) [[unlikely]] {
    return from_output(op, autocast(CastTo::float32, x), where, slope);
  }
  Tensor y = ops::unary(op, x);
  if (needs_grad(x)) {
    record(y, ops::name_of(op), {&x}, [y = Saved::output(y), slope](BackwardContext& context) {
      context.set(0, slope(context.grad(), y.get(context)));
    });
  }
  return y;
}

// Constant between its jumps.
[[nodiscard]] Tensor step_function(UnaryOp op, const Tensor& x, const Where& where) {
  const CallSite site(where);
  Tensor y = ops::unary(op, x);
  if (needs_grad(x)) {
    record(y, ops::name_of(op), {&x},
           [](BackwardContext& context) { context.set(0, zeros_like(context.grad())); });
  }
  return y;
}

}  // namespace

Tensor abs(const Tensor& x, Where where) {
  return from_input(UnaryOp::abs, x, where,
                    [](const Tensor& g, const Tensor& value) { return g * sign(value); });
}

Tensor sign(const Tensor& x, Where where) { return step_function(UnaryOp::sign, x, where); }

Tensor square(const Tensor& x, Where where) {
  return from_input(UnaryOp::square, x, where,
                    [](const Tensor& g, const Tensor& value) { return g * (value * 2); });
}

Tensor exp(const Tensor& x, Where where) {
  return from_output(UnaryOp::exp, x, where,
                     [](const Tensor& g, const Tensor& y) { return g * y; });
}

Tensor expm1(const Tensor& x, Where where) {
  return from_output(UnaryOp::expm1, x, where,
                     [](const Tensor& g, const Tensor& y) { return g * (y + 1); });
}

Tensor log(const Tensor& x, Where where) {
  return from_input(UnaryOp::log, x, where,
                    [](const Tensor& g, const Tensor& value) { return g / value; });
}

Tensor log1p(const Tensor& x, Where where) {
  return from_input(UnaryOp::log1p, x, where,
                    [](const Tensor& g, const Tensor& value) { return g / (value + 1); });
}

Tensor sqrt(const Tensor& x, Where where) {
  return from_output(UnaryOp::sqrt, x, where,
                     [](const Tensor& g, const Tensor& y) { return g / (y * 2); });
}

Tensor rsqrt(const Tensor& x, Where where) {
  return from_output(UnaryOp::rsqrt, x, where,
                     [](const Tensor& g, const Tensor& y) { return g * (y * y * y * -0.5); });
}

Tensor reciprocal(const Tensor& x, Where where) {
  return from_output(UnaryOp::reciprocal, x, where,
                     [](const Tensor& g, const Tensor& y) { return neg(g * square(y)); });
}

Tensor sin(const Tensor& x, Where where) {
  return from_input(UnaryOp::sin, x, where,
                    [](const Tensor& g, const Tensor& value) { return g * cos(value); });
}

Tensor cos(const Tensor& x, Where where) {
  return from_input(UnaryOp::cos, x, where,
                    [](const Tensor& g, const Tensor& value) { return neg(g * sin(value)); });
}

Tensor erf(const Tensor& x, Where where) {
  return from_input(UnaryOp::erf, x, where, [](const Tensor& g, const Tensor& value) {
    return g * exp(neg(square(value))) * (2.0 * std::numbers::inv_sqrtpi);
  });
}

Tensor floor(const Tensor& x, Where where) { return step_function(UnaryOp::floor, x, where); }
Tensor ceil(const Tensor& x, Where where) { return step_function(UnaryOp::ceil, x, where); }
Tensor round(const Tensor& x, Where where) { return step_function(UnaryOp::round, x, where); }

}  // namespace capstan

#include "autograd/arithmetic.h"

#include <cmath>

#include "autograd/autocast_policy.h"
#include "autograd/broadcast.h"
#include "autograd/math.h"
#include "autograd/node.h"
#include "autograd/promotion.h"
#include "framework/tensor/factory.h"
#include "ops/elementwise.h"

namespace capstan {

using autograd::BackwardContext;
using autograd::CastTo;
using autograd::in_dtype;
using autograd::meeting_dtype;
using autograd::needs_grad;
using autograd::record;
using autograd::requires_grad;
using autograd::Saved;
using autograd::scalar_like;
using autograd::sum_to;
using autograd::tensor_of;

namespace {

[[nodiscard]] bool needs_grad_of(const Operand& a, const Operand& b) noexcept {
  return needs_grad(tensor_of(a), tensor_of(b));
}

[[nodiscard]] Shape shape_of(const Operand& operand) {
  return operand.is_tensor() ? operand.tensor().shape() : Shape{};
}

// What backward keeps of an operand: its value, if some gradient depends on it, and its shape.
class Kept {
 public:
  Kept(const Operand& operand, bool value)
      : saved_(value && operand.is_tensor() ? Saved(operand.tensor()) : Saved()),
        number_(operand.value()),
        is_tensor_(operand.is_tensor()),
        shape_(shape_of(operand)) {}

  [[nodiscard]] bool is_tensor() const noexcept { return is_tensor_; }
  [[nodiscard]] double number() const noexcept { return number_; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] Tensor get(const BackwardContext& context) const { return saved_.get(context); }

  // Calls `body` with the operand.
  template <typename Body>
  [[nodiscard]] Tensor apply(const BackwardContext& context, const Body& body) const {
    if (!is_tensor_) return body(Operand(number_));
    const Tensor tensor = saved_.get(context);
    return body(Operand(tensor));
  }

 private:
  Saved saved_;
  double number_;
  bool is_tensor_;
  Shape shape_;
};

}  // namespace

Tensor add(const Operand& a, const Operand& b) {
  const CallSite site(a.where());
  if (const auto dtype = meeting_dtype(a, b)) return in_dtype(*dtype, a, b, add);
  Tensor y = autograd::binary(BinaryOp::add, a, b);
  if (needs_grad_of(a, b)) {
    record(y, "add", {&tensor_of(a), &tensor_of(b)},
           [a_shape = shape_of(a), b_shape = shape_of(b)](BackwardContext& context) {
             if (context.needs(0)) context.set(0, sum_to(context.grad(), a_shape));
             if (context.needs(1)) context.set(1, sum_to(context.grad(), b_shape));
           });
  }
  return y;
}

Tensor sub(const Operand& a, const Operand& b) {
  const CallSite site(a.where());
  if (const auto dtype = meeting_dtype(a, b)) return in_dtype(*dtype, a, b, sub);
  Tensor y = autograd::binary(BinaryOp::sub, a, b);
  if (needs_grad_of(a, b)) {
    record(y, "sub", {&tensor_of(a), &tensor_of(b)},
           [a_shape = shape_of(a), b_shape = shape_of(b)](BackwardContext& context) {
             if (context.needs(0)) context.set(0, sum_to(context.grad(), a_shape));
             if (context.needs(1)) context.set(1, neg(sum_to(context.grad(), b_shape)));
           });
  }
  return y;
}

Tensor mul(const Operand& a, const Operand& b) {
  const CallSite site(a.where());
  if (const auto dtype = meeting_dtype(a, b)) return in_dtype(*dtype, a, b, mul);
  Tensor y = autograd::binary(BinaryOp::mul, a, b);
  if (needs_grad_of(a, b)) {
    record(y, "mul", {&tensor_of(a), &tensor_of(b)},
           [a = Kept(a, requires_grad(tensor_of(b))),
            b = Kept(b, requires_grad(tensor_of(a)))](BackwardContext& context) {
             const auto times_grad = [&](const Operand& x) { return mul(context.grad(), x); };
             if (context.needs(0)) context.set(0, sum_to(b.apply(context, times_grad), a.shape()));
             if (context.needs(1)) context.set(1, sum_to(a.apply(context, times_grad), b.shape()));
           });
  }
  return y;
}

Tensor div(const Operand& a, const Operand& b) {
  const CallSite site(a.where());
  if (const auto dtype = meeting_dtype(a, b, true)) return in_dtype(*dtype, a, b, div);
  Tensor y = autograd::binary(BinaryOp::div, a, b);
  if (needs_grad_of(a, b)) {
    const bool b_needs = requires_grad(tensor_of(b));
    record(y, "div", {&tensor_of(a), &tensor_of(b)},
           [a = Kept(a, false), b = Kept(b, true),
            y = b_needs ? Saved::output(y) : Saved()](BackwardContext& context) {
             const Tensor da = b.apply(
                 context, [&](const Operand& divisor) { return div(context.grad(), divisor); });
             if (context.needs(0)) context.set(0, sum_to(da, a.shape()));
             if (context.needs(1)) context.set(1, neg(sum_to(da * y.get(context), b.shape())));
           });
  }
  return y;
}

namespace {

// b a^(b - 1), and 0 rather than NaN where both are 0.
[[nodiscard]] Tensor pow_slope(const Tensor& a, const Kept& exponent,
                               const BackwardContext& context) {
  if (!exponent.is_tensor()) {
    const double p = exponent.number();
    return p == 0.0 ? zeros_like(a) : pow(a, p - 1.0) * p;
  }
  const Tensor b = exponent.get(context);
  const Tensor both_zero = logical_and(eq(a, 0), eq(b, 0));
  return b * pow(a, where(both_zero, scalar_like(b, 0.0), b - 1));
}

// log a, and 0 where a is 0: there a^b does not change with b > 0.
[[nodiscard]] Tensor pow_log(const Kept& base, const BackwardContext& context) {
  const Tensor a = base.get(context);
  return log(where(eq(a, 0), scalar_like(a, 1.0), a));
}

}  // namespace

Tensor pow(const Operand& a, const Operand& b) {
  const CallSite site(a.where());
  if (autograd::autocasts(CastTo::float32, tensor_of(a), tensor_of(b))) [[unlikely]] {
    return in_dtype(DType::float32, a, b, pow);
  }
  if (const auto dtype = meeting_dtype(a, b)) return in_dtype(*dtype, a, b, pow);
  Tensor y = autograd::binary(BinaryOp::pow, a, b);
  if (needs_grad_of(a, b)) {
    const bool b_needs = requires_grad(tensor_of(b));
    record(y, "pow", {&tensor_of(a), &tensor_of(b)},
           [a = Kept(a, true), b = Kept(b, requires_grad(tensor_of(a))),
            y = b_needs ? Saved::output(y) : Saved()](BackwardContext& context) {
             const Tensor& g = context.grad();
             if (context.needs(0)) {
               context.set(0, sum_to(g * pow_slope(a.get(context), b, context), a.shape()));
             }
             if (context.needs(1)) {
               const Tensor gy = g * y.get(context);
               const double base = a.number();
               context.set(1, sum_to(a.is_tensor() ? gy * pow_log(a, context)
                                                   : gy * (base == 0.0 ? 0.0 : std::log(base)),
                                     b.shape()));
             }
           });
  }
  return y;
}

namespace {

[[nodiscard]] Tensor extreme(BinaryOp op, BinaryOp wins, const Operand& a, const Operand& b) {
  const CallSite site(a.where());
  if (const auto dtype = meeting_dtype(a, b)) {
    return in_dtype(*dtype, a, b, [=](const Operand& left, const Operand& right) {
      return extreme(op, wins, left, right);
    });
  }
  Tensor y = autograd::binary(op, a, b);
  if (needs_grad_of(a, b)) {
    record(y, ops::name_of(op), {&tensor_of(a), &tensor_of(b)},
           [wins, a = Kept(a, true), b = Kept(b, true)](BackwardContext& context) {
             const Tensor& g = context.grad();
             const Tensor da = a.apply(context, [&](const Operand& left) {
               return b.apply(context, [&](const Operand& right) {
                 const Tensor won = autograd::binary(wins, left, right);
                 return where(eq(left, right), g * 0.5, where(won, g, scalar_like(g, 0.0)));
               });
             });
             if (context.needs(0)) context.set(0, sum_to(da, a.shape()));
             if (context.needs(1)) context.set(1, sum_to(g - da, b.shape()));
           });
  }
  return y;
}

}  // namespace

Tensor maximum(const Operand& a, const Operand& b) {
  return extreme(BinaryOp::maximum, BinaryOp::gt, a, b);
}

Tensor minimum(const Operand& a, const Operand& b) {
  return extreme(BinaryOp::minimum, BinaryOp::lt, a, b);
}

Tensor neg(const Operand& x) {
  const CallSite site(x.where());
  CAPSTAN_CHECK(x.is_tensor(), ValueError, "neg: needs a tensor, got the number ", x.value(),
                "; write it with its sign");
  Tensor y = ops::unary(UnaryOp::neg, x.tensor());
  if (needs_grad(x.tensor())) {
    record(y, "neg", {&x.tensor()},
           [](BackwardContext& context) { context.set(0, neg(context.grad())); });
  }
  return y;
}

}  // namespace capstan

#include "autograd/arithmetic.h"
#include "autograd/broadcast.h"
#include "autograd/node.h"
#include "autograd/promotion.h"
#include "ops/elementwise.h"

namespace capstan {

using autograd::BackwardContext;
using autograd::needs_grad;
using autograd::record;
using autograd::scalar_like;
using autograd::sum_to;

namespace {

[[nodiscard]] Tensor compare(BinaryOp op, const Operand& a, const Operand& b) {
  const CallSite site(a.where());
  const auto compared = [op](const Operand& left, const Operand& right) {
    return autograd::binary(op, left, right);
  };
  if (const auto dtype = autograd::meeting_dtype(a, b)) {
    const NoGradGuard no_grad;
    return autograd::in_dtype(*dtype, a, b, compared);
  }
  return compared(a, b);
}

[[nodiscard]] Tensor logical(BinaryOp op, const Operand& a, const Operand& b) {
  const CallSite site(a.where());
  return autograd::binary(op, a, b);
}

}  // namespace

Tensor eq(const Operand& a, const Operand& b) { return compare(BinaryOp::eq, a, b); }
Tensor ne(const Operand& a, const Operand& b) { return compare(BinaryOp::ne, a, b); }
Tensor lt(const Operand& a, const Operand& b) { return compare(BinaryOp::lt, a, b); }
Tensor le(const Operand& a, const Operand& b) { return compare(BinaryOp::le, a, b); }
Tensor gt(const Operand& a, const Operand& b) { return compare(BinaryOp::gt, a, b); }
Tensor ge(const Operand& a, const Operand& b) { return compare(BinaryOp::ge, a, b); }

Tensor logical_and(const Operand& a, const Operand& b) {
  return logical(BinaryOp::logical_and, a, b);
}

Tensor logical_or(const Operand& a, const Operand& b) {
  return logical(BinaryOp::logical_or, a, b);
}

Tensor logical_not(const Tensor& x, Where where) {
  const CallSite site(where);
  return ops::unary(UnaryOp::logical_not, x);
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b, Where where) {
  const CallSite site(where);
  if (const auto dtype = autograd::meeting_dtype(a, b)) {
    return capstan::where(condition, a.to(*dtype), b.to(*dtype), where);
  }
  Tensor y = ops::where(condition, a, b);
  if (needs_grad(a, b)) {
    record(y, "where", {&a, &b},
           [condition = autograd::Saved(condition), a_shape = a.shape(),
            b_shape = b.shape()](BackwardContext& context) {
             const Tensor mask = condition.get(context);
             const Tensor& g = context.grad();
             const Tensor zero = scalar_like(g, 0.0);
             if (context.needs(0)) {
               context.set(0, sum_to(capstan::where(mask, g, zero), a_shape));
             }
             if (context.needs(1)) {
               context.set(1, sum_to(capstan::where(mask, zero, g), b_shape));
             }
           });
  }
  return y;
}

}  // namespace capstan

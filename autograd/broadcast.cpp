#include "autograd/broadcast.h"

#include "autograd/node.h"
#include "ops/creation.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

namespace capstan::autograd {

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Tensor y = ops::sum_to(x, shape);
  if (needs_grad(x)) {
    record(y, "sum_to", {&x}, [x_shape = x.shape()](BackwardContext& context) {
      context.set(0, context.grad().expand(x_shape));
    });
  }
  return y;
}

Tensor binary(BinaryOp op, const Operand& a, const Operand& b) {
  if (a.is_tensor()) {
    return b.is_tensor() ? ops::binary(op, a.tensor(), b.tensor())
                         : ops::binary(op, a.tensor(), b.value());
  }
  CAPSTAN_CHECK(b.is_tensor(), ValueError, ops::name_of(op), ": needs a tensor, got the numbers ",
                a.value(), " and ", b.value(), "; make one of them a tensor with full");
  return ops::binary(op, a.value(), b.tensor());
}

Tensor scalar_like(const Tensor& other, double value) {
  return full({}, value, {.dtype = other.dtype(), .device = other.device()});
}

}  // namespace capstan::autograd

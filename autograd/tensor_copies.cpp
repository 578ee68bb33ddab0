#include "autograd/node.h"
#include "framework/tensor/factory.h"
#include "ops/elementwise.h"

namespace capstan {

using autograd::BackwardContext;
using autograd::needs_grad;
using autograd::record;

namespace {

// A copy passes its gradient on as it is.
void record_copy(const Tensor& y, const char* name, const Tensor& x) {
  if (!needs_grad(x)) return;
  record(y, name, {&x}, [](BackwardContext& context) { context.set(0, context.grad()); });
}

}  // namespace

Tensor Tensor::contiguous(Where where) const {
  const CallSite site(where);
  if (is_contiguous()) return *this;
  Tensor y = ops::contiguous(*this);
  record_copy(y, "contiguous", *this);
  return y;
}

Tensor Tensor::clone(Where where) const {
  const CallSite site(where);
  Tensor y = ops::clone(*this);
  record_copy(y, "clone", *this);
  return y;
}

Tensor Tensor::to(Device target, Where where) const {
  const CallSite site(where);
  if (target == device()) return *this;
  Tensor y = empty(shape(), {.dtype = dtype(), .device = target});
  ops::copy(y, *this);
  if (needs_grad(*this)) {
    record(y, "to", {this}, [source = device()](BackwardContext& context) {
      context.set(0, context.grad().to(source));
    });
  }
  return y;
}

Tensor Tensor::to(DType target, Where where) const {
  const CallSite site(where);
  if (target == dtype()) return *this;
  Tensor y = ops::cast(*this, target);
  if (is_floating(target) && needs_grad(*this)) {
    record(y, "to", {this}, [source = dtype()](BackwardContext& context) {
      context.set(0, context.grad().to(source));
    });
  }
  return y;
}

}  // namespace capstan

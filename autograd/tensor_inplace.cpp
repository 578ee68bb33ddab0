#include "autograd/arithmetic.h"
#include "autograd/broadcast.h"
#include "autograd/node.h"
#include "autograd/promotion.h"
#include "framework/tensor/factory.h"
#include "ops/elementwise.h"

// A write in place gives the tensor a new history. What the old one saved is guarded by version
// counters; what this operation saves of the old values is copied before they go.
namespace capstan {

using autograd::BackwardContext;
using autograd::needs_grad;
using autograd::record;
using autograd::requires_grad;
using autograd::Saved;
using autograd::sum_to;
using autograd::tensor_of;

namespace {

// True if another tensor shows the same memory and would keep a history that is no longer true.
// A result may share its memory with saved values, which notice, and with detached tensors, which
// have no history; both are in no family.
[[nodiscard]] bool has_other_viewers(const Tensor& tensor) {
  const TensorImpl& impl = *tensor.impl();
  if (impl.is_view || !requires_grad(tensor)) return impl.storage->use_count() > 1;
  return impl.view_family && impl.view_family->use_count() > 1;
}

// Whether writing `operand` (undefined for a number) into `self` must be recorded.
// @throws GradError if the gradients would be wrong.
[[nodiscard]] bool is_recorded_write(const char* op, const Tensor& self, const Tensor& operand) {
  if (!needs_grad(self, operand)) return false;
  CAPSTAN_CHECK(!(requires_grad(self) && self.is_leaf()), GradError, op,
                ": a leaf that requires a gradient cannot be written while gradients are recorded,"
                " got ",
                describe(self), "; write under a NoGradGuard, or to its detach()");
  CAPSTAN_CHECK(!has_other_viewers(self), GradError, op,
                ": the tensor shares its memory with others (it is a view, or has views), whose "
                "history would no longer be true, got ",
                describe(self),
                "; write to its clone(), build the result with cat or where, or write under a "
                "NoGradGuard if no gradient is wanted");
  return true;
}

void write(BinaryOp op, const Tensor& self, const Operand& other) {
  if (!other.is_tensor()) return ops::binary_out(op, self, other.value(), self);
  const Tensor& operand = other.tensor();
  const bool alike = operand.dtype() == self.dtype() || operand.device() != self.device();
  if (alike) return ops::binary_out(op, self, operand, self);
  // Computed where the dtypes meet, and rounded to that of self once.
  const DType dtype = autograd::result_type(self, other);
  autograd::check_holds(ops::name_of(op), self, dtype);
  CAPSTAN_CHECK(broadcast_shapes(self.shape(), operand.shape(), ops::name_of(op)) == self.shape(),
                ShapeError, ops::name_of(op), ": the result does not fit in place, got ",
                describe(self), " and ", describe(operand));
  ops::copy(self, ops::binary(op, ops::cast(self, dtype), ops::cast(operand, dtype)));
}

// The operand for backward, safe from the coming write.
[[nodiscard]] Tensor before_write(const Tensor& operand, const Tensor& self) {
  return operand.defined() && operand.storage() == self.storage() ? operand.clone() : operand;
}

// A factor or a divisor in backward: a tensor, or the number of an operand without one.
class Kept {
 public:
  Kept(const Tensor& tensor, double number)
      : saved_(tensor.defined() ? Saved(tensor) : Saved()), number_(number) {}

  [[nodiscard]] Tensor scale(BinaryOp op, const Tensor& g, const BackwardContext& context) const {
    const Tensor tensor = saved_.defined() ? saved_.get(context) : Tensor();
    const Operand operand = tensor.defined() ? Operand(tensor) : Operand(number_);
    return op == BinaryOp::div ? div(g, operand) : mul(g, operand);
  }

 private:
  Saved saved_;
  double number_;
};

// The gradient for `operand`, broadcast and maybe converted before.
[[nodiscard]] Tensor fitted(const Tensor& g, const Shape& shape, DType dtype) {
  return sum_to(g, shape).to(dtype);
}

[[nodiscard]] DType dtype_of_operand(const Tensor& tensor, const Tensor& self) {
  return tensor.defined() ? tensor.dtype() : self.dtype();
}

[[nodiscard]] Shape shape_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.shape() : Shape{};
}

void add_in_place(const char* name, BinaryOp op, const Tensor& self, const Operand& other) {
  const Tensor& operand = tensor_of(other);
  const bool recorded = is_recorded_write(name, self, operand);
  write(op, self, other);
  if (!recorded) return;
  record(self, name, {&self, &operand},
         [op, shape = shape_of(operand),
          dtype = dtype_of_operand(operand, self)](BackwardContext& context) {
           const Tensor& g = context.grad();
           if (context.needs(0)) context.set(0, g);
           if (!context.needs(1)) return;
           const Tensor d = fitted(g, shape, dtype);
           context.set(1, op == BinaryOp::sub ? neg(d) : d);
         });
}

void fill_in_place(const char* name, const Tensor& self, double value) {
  const bool recorded = is_recorded_write(name, self, Tensor());
  ops::fill(self, value);
  if (!recorded) return;
  record(self, name, {&self},
         [](BackwardContext& context) { context.set(0, zeros_like(context.grad())); });
}

}  // namespace

const Tensor& Tensor::copy_(const Tensor& from, Where where) const {
  const CallSite site(where);
  const Tensor differentiable = is_floating(dtype()) && from.defined() ? from : Tensor();
  const bool recorded = is_recorded_write("copy_", *this, differentiable);
  ops::copy(*this, from);
  if (!recorded) return *this;
  record(*this, "copy_", {this, &from},
         [shape = from.shape(), source_dtype = from.dtype(),
          source = from.device()](BackwardContext& context) {
           const Tensor& g = context.grad();
           if (context.needs(0)) context.set(0, zeros_like(g));
           if (context.needs(1)) context.set(1, sum_to(g, shape).to(source_dtype).to(source));
         });
  return *this;
}

const Tensor& Tensor::fill_(double value, Where where) const {
  const CallSite site(where);
  fill_in_place("fill_", *this, value);
  return *this;
}

const Tensor& Tensor::zero_(Where where) const {
  const CallSite site(where);
  fill_in_place("zero_", *this, 0.0);
  return *this;
}

const Tensor& Tensor::add_(const Operand& other, Where where) const {
  const CallSite site(where);
  add_in_place("add_", BinaryOp::add, *this, other);
  return *this;
}

const Tensor& Tensor::sub_(const Operand& other, Where where) const {
  const CallSite site(where);
  add_in_place("sub_", BinaryOp::sub, *this, other);
  return *this;
}

const Tensor& Tensor::mul_(const Operand& other, Where where) const {
  const CallSite site(where);
  const Tensor& operand = tensor_of(other);
  if (!is_recorded_write("mul_", *this, operand)) {
    write(BinaryOp::mul, *this, other);
    return *this;
  }
  const Tensor factor = autograd::requires_grad(*this) ? before_write(operand, *this) : Tensor();
  const Tensor old = autograd::requires_grad(operand) ? clone() : Tensor();
  write(BinaryOp::mul, *this, other);
  record(*this, "mul_", {this, &operand},
         [factor = Kept(factor, other.value()), old = Kept(old, 0.0), shape = shape_of(operand),
          dtype = dtype_of_operand(operand, *this)](BackwardContext& context) {
           const Tensor& g = context.grad();
           if (context.needs(0)) {
             context.set(0, factor.scale(BinaryOp::mul, g, context).to(g.dtype()));
           }
           if (context.needs(1)) {
             context.set(1, fitted(old.scale(BinaryOp::mul, g, context), shape, dtype));
           }
         });
  return *this;
}

const Tensor& Tensor::div_(const Operand& other, Where where) const {
  const CallSite site(where);
  const Tensor& operand = tensor_of(other);
  if (!is_recorded_write("div_", *this, operand)) {
    write(BinaryOp::div, *this, other);
    return *this;
  }
  const Tensor divisor = before_write(operand, *this);
  write(BinaryOp::div, *this, other);
  record(*this, "div_", {this, &operand},
         [divisor = Kept(divisor, other.value()),
          y = autograd::requires_grad(operand) ? Saved::output(*this) : Saved(),
          shape = shape_of(operand),
          dtype = dtype_of_operand(operand, *this)](BackwardContext& context) {
           const Tensor& g = context.grad();
           const Tensor d = divisor.scale(BinaryOp::div, g, context);
           if (context.needs(0)) context.set(0, d.to(g.dtype()));
           if (context.needs(1)) context.set(1, neg(fitted(d * y.get(context), shape, dtype)));
         });
  return *this;
}

}  // namespace capstan

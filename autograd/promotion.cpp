#include "autograd/promotion.h"

namespace capstan::autograd {
namespace {

Participant participant(const Operand& operand) {
  if (!operand.is_tensor()) return {operand.number_dtype(), Weight::number};
  const Tensor& tensor = operand.tensor();
  return {tensor.dtype(), tensor.rank() == 0 ? Weight::scalar_tensor : Weight::tensor};
}

bool has_dtype(const Operand& operand, DType dtype) {
  return !operand.is_tensor() || operand.tensor().dtype() == dtype;
}

}  // namespace

DType result_type(const Operand& a, const Operand& b) {
  return capstan::result_type({participant(a), participant(b)});
}

std::optional<DType> meeting_dtype(const Operand& a, const Operand& b, bool floating) {
  if (!a.is_tensor() && !b.is_tensor()) return {};
  if (a.is_tensor() && b.is_tensor() && a.tensor().device() != b.tensor().device()) return {};
  const DType result = result_type(a, b);
  const DType dtype = floating && !is_floating(result) ? DType::float32 : result;
  if (has_dtype(a, dtype) && has_dtype(b, dtype)) return {};
  return dtype;
}

void check_holds(const char* op, const Tensor& self, DType dtype) {
  const bool holds =
      is_floating(self.dtype()) ||
      (!is_floating(dtype) && (self.dtype() != DType::boolean || dtype == DType::boolean));
  CAPSTAN_CHECK(holds, DTypeError, op, ": the result is ", dtype, ", which cannot be stored in ",
                describe(self), "; use the form that is not in place, or convert with .to(dtype)");
}

}  // namespace capstan::autograd

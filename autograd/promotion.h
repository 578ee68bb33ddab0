#pragma once

#include <optional>

#include "framework/core/promote.h"
#include "framework/tensor/tensor.h"

// Operands of different dtypes; for sources of this folder. An operation converts them first, so
// that its kernel sees one dtype and gradients come back through the conversion.
namespace capstan::autograd {

/// What `result_type` says of two operands, at least one of which is a tensor.
[[nodiscard]] DType result_type(const Operand& a, const Operand& b);

/// The dtype to convert tensors to first; empty if all have it, as most do. With `floating` that is
/// float32 instead of an integer or bool.
[[nodiscard]] std::optional<DType> meeting_dtype(const Operand& a, const Operand& b,
                                                 bool floating = false);

/// `operation(a, b)` with tensors converted to `dtype`; differentiable.
template <typename Operation>
[[nodiscard]] Tensor in_dtype(DType dtype, const Operand& a, const Operand& b,
                              Operation operation) {
  const Tensor left = a.is_tensor() ? a.tensor().to(dtype) : Tensor();
  const Tensor right = b.is_tensor() ? b.tensor().to(dtype) : Tensor();
  return operation(a.is_tensor() ? Operand(left, a.where()) : a,
                   b.is_tensor() ? Operand(right, b.where()) : b);
}

/// @throws DTypeError naming `op` if a `self` of its dtype cannot take results of `dtype`: integers
///   no floating ones, bool nothing else.
void check_holds(const char* op, const Tensor& self, DType dtype);

}  // namespace capstan::autograd

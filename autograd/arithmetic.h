#pragma once

#include "framework/tensor/tensor.h"

// Differentiable arithmetic with broadcasting. Operands are tensors on one device, or numbers.
// Different dtypes meet as framework/core/promote.h says, numbers mostly take the tensor's;
// gradients have the dtype of their operand. Integers divide to float32. Results are new tensors;
// work on the GPU is only enqueued.
// @throws ShapeError, DTypeError, DeviceError naming the operation, the operands and the user's
// line.
namespace capstan {

[[nodiscard]] Tensor add(const Operand& a, const Operand& b);
[[nodiscard]] Tensor sub(const Operand& a, const Operand& b);
[[nodiscard]] Tensor mul(const Operand& a, const Operand& b);
[[nodiscard]] Tensor div(const Operand& a, const Operand& b);
[[nodiscard]] Tensor pow(const Operand& a, const Operand& b);
/// The gradient of equal elements goes half to each.
[[nodiscard]] Tensor maximum(const Operand& a, const Operand& b);
[[nodiscard]] Tensor minimum(const Operand& a, const Operand& b);
[[nodiscard]] Tensor neg(const Operand& x);

[[nodiscard]] inline Tensor operator+(const Operand& a, const Operand& b) { return add(a, b); }
[[nodiscard]] inline Tensor operator-(const Operand& a, const Operand& b) { return sub(a, b); }
[[nodiscard]] inline Tensor operator*(const Operand& a, const Operand& b) { return mul(a, b); }
[[nodiscard]] inline Tensor operator/(const Operand& a, const Operand& b) { return div(a, b); }
[[nodiscard]] inline Tensor operator-(const Operand& x) { return neg(x); }

// Comparisons and logic: bool results, no gradient.
[[nodiscard]] Tensor eq(const Operand& a, const Operand& b);
[[nodiscard]] Tensor ne(const Operand& a, const Operand& b);
[[nodiscard]] Tensor lt(const Operand& a, const Operand& b);
[[nodiscard]] Tensor le(const Operand& a, const Operand& b);
[[nodiscard]] Tensor gt(const Operand& a, const Operand& b);
[[nodiscard]] Tensor ge(const Operand& a, const Operand& b);
[[nodiscard]] Tensor logical_and(const Operand& a, const Operand& b);
[[nodiscard]] Tensor logical_or(const Operand& a, const Operand& b);
[[nodiscard]] Tensor logical_not(const Tensor& x, Where where = Where::current());

/// condition ? a : b, elementwise, broadcasting; condition is bool; dtypes as above.
/// Differentiable in a and b.
[[nodiscard]] Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b,
                           Where where = Where::current());

}  // namespace capstan

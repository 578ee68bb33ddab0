#pragma once

#include "framework/tensor/tensor.h"
#include "ops/kernels.h"

// Broadcasting of operands, and its inverse for gradients; for sources of this folder.
namespace capstan::autograd {

/// Sums `x` to `shape`, from which it was broadcast; differentiable. `x` itself if it has it.
[[nodiscard]] Tensor sum_to(const Tensor& x, const Shape& shape);

/// The operation without gradients. @throws ValueError if both operands are numbers.
[[nodiscard]] Tensor binary(BinaryOp op, const Operand& a, const Operand& b);

/// The tensor of an operand; an undefined one, which has no gradient, for a number.
[[nodiscard]] inline const Tensor& tensor_of(const Operand& operand) noexcept {
  static const Tensor undefined;
  return operand.is_tensor() ? operand.tensor() : undefined;
}

/// A tensor without axes that broadcasts to the shape of `other`.
[[nodiscard]] Tensor scalar_like(const Tensor& other, double value);

}  // namespace capstan::autograd

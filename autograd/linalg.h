#pragma once

#include "framework/tensor/tensor.h"

// Differentiable matrix products; see ops/matmul.h for shapes and errors.
namespace capstan {

/// [..., m, k] x [..., k, n], leading axes broadcast.
[[nodiscard]] Tensor matmul(const Tensor& a, const Tensor& b, Where where = Where::current());
/// The same for [b, m, k] x [b, k, n] and nothing else.
[[nodiscard]] Tensor bmm(const Tensor& a, const Tensor& b, Where where = Where::current());
/// x w^T + bias: x [..., in], weight [out, in], bias [out] or undefined.
[[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = Tensor(),
                            Where where = Where::current());

}  // namespace capstan

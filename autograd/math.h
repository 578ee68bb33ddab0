#pragma once

#include "framework/tensor/tensor.h"

// Differentiable elementwise functions of floating tensors (abs, sign, square: any numeric dtype,
// without gradient for integers). @throws DTypeError naming the function.
namespace capstan {

[[nodiscard]] Tensor abs(const Tensor& x, Where where = Where::current());
[[nodiscard]] Tensor sign(const Tensor& x, Where where = Where::current());
[[nodiscard]] Tensor square(const Tensor& x, Where where = Where::current());
[[nodiscard]] Tensor exp(const Tensor& x, Where where = Where::current());
[[nodiscard]] Tensor expm1(const Tensor& x, Where where = Where::current());
[[nodiscard]] Tensor log(const Tensor& x, Where where = Where::current());
[[nodiscard]] Tensor log1p(const Tensor& x, Where where = Where::current());
[[nodiscard]] Tensor sqrt(const Tensor& x, Where where = Where::current());
[[nodiscard]] Tensor rsqrt(const Tensor& x, Where where = Where::current());
[[nodiscard]] Tensor reciprocal(const Tensor& x, Where where = Where::current());
[[nodiscard]] Tensor sin(const Tensor& x, Where where = Where::current());
[[nodiscard]] Tensor cos(const Tensor& x, Where where = Where::current());
[[nodiscard]] Tensor erf(const Tensor& x, Where where = Where::current());
/// Gradient zero.
[[nodiscard]] Tensor floor(const Tensor& x, Where where = Where::current());
[[nodiscard]] Tensor ceil(const Tensor& x, Where where = Where::current());
/// Halves go to the even neighbour.
[[nodiscard]] Tensor round(const Tensor& x, Where where = Where::current());

/// max(x, 0); the gradient at 0 is 0.
[[nodiscard]] Tensor relu(const Tensor& x, Where where = Where::current());
/// x Phi(x), Phi the standard normal distribution function (Hendrycks and Gimpel 2016).
[[nodiscard]] Tensor gelu(const Tensor& x, Where where = Where::current());
[[nodiscard]] Tensor tanh(const Tensor& x, Where where = Where::current());
/// 1 / (1 + exp(-x)).
[[nodiscard]] Tensor sigmoid(const Tensor& x, Where where = Where::current());

}  // namespace capstan

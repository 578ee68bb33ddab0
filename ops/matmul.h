#pragma once

#include "framework/tensor/tensor.h"

namespace capstan::ops {

/// Matrix product over the last two axes, a [..., m, k] times b [..., k, n]; leading axes
/// broadcast. Rank 1 counts as a row (a) or a column (b), and that axis disappears again.
/// Transposed views are used in place. Floating dtypes, accumulated in that precision, but float16
/// and bfloat16 in float32.
/// @throws ShapeError, DTypeError, DeviceError.
[[nodiscard]] Tensor matmul(const Tensor& a, const Tensor& b);

/// y = x w^T + bias for x [..., in], w [out, in], bias [out] or undefined; y is [..., out].
/// @throws ShapeError, DTypeError, DeviceError naming `linear`.
[[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

}  // namespace capstan::ops

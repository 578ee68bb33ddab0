#pragma once

#include "framework/tensor/tensor.h"
#include "ops/kernels.h"

namespace capstan::ops {

/// Reduces over `axes` (all of them if empty); reduced axes disappear, or stay with size 1 if
/// `keepdim`. Same dtype out (sum of bool and integers: int64). Sums are bitwise repeatable.
/// @throws IndexError on a bad axis, ValueError on a repeated one; DTypeError for mean of integers;
/// ShapeError for max or min over nothing (sum over nothing is 0, mean NaN).
[[nodiscard]] Tensor reduce(ReduceOp op, const Tensor& x, const Axes& axes = {},
                            bool keepdim = false);
/// Sums `x` to `shape`, from which it was broadcast; `x` itself if it has that shape.
[[nodiscard]] Tensor sum_to(const Tensor& x, const Shape& shape);
/// Index (int64) of the largest element along `axis`, the first of equals; NaN counts as largest.
/// @throws ShapeError if the axis is empty.
[[nodiscard]] Tensor argmax(const Tensor& x, int axis, bool keepdim = false);

}  // namespace capstan::ops

#pragma once

#include "framework/tensor/tensor.h"
#include "ops/pool.h"

// Differentiable pooling of x [batch, channels, height, width]; see ops/pool.h for options and
// errors. Any number of derivatives. Autocast leaves the dtype alone.
namespace capstan {

/// The largest of each window; its gradient goes to the first of equal elements.
[[nodiscard]] Tensor max_pool2d(const Tensor& x, Size2d kernel, MaxPoolOptions options = {},
                                Where where = Where::current());
/// The same, and where in its plane each is: row * width + column, int64, without gradient.
[[nodiscard]] MaxPool max_pool2d_with_indices(const Tensor& x, Size2d kernel,
                                              MaxPoolOptions options = {},
                                              Where where = Where::current());
/// The mean of each window.
[[nodiscard]] Tensor avg_pool2d(const Tensor& x, Size2d kernel, AvgPoolOptions options = {},
                                Where where = Where::current());
/// Means over windows that cover x as evenly as can be: y is [batch, channels, output height,
/// output width], whatever the size of x.
[[nodiscard]] Tensor adaptive_avg_pool2d(const Tensor& x, Size2d output,
                                         Where where = Where::current());

}  // namespace capstan

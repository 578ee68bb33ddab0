#pragma once

#include <optional>

#include "framework/tensor/tensor.h"
#include "ops/size2d.h"

// Pooling of images without gradients: x [batch, channels, height, width]. Floating dtypes. Work on
// the GPU is only enqueued. @throws ShapeError, DTypeError, DeviceError, ValueError naming the
// operation.
namespace capstan {

struct MaxPoolOptions {
  std::optional<Size2d> stride{};  ///< empty: the size of the window
  Size2d padding = 0;              ///< on each side, at most half of a window; never the largest
  Size2d dilation = 1;
  bool ceil_mode = false;  ///< a last window may reach beyond the padding
};

struct AvgPoolOptions {
  std::optional<Size2d> stride{};  ///< empty: the size of the window
  Size2d padding = 0;              ///< zeros on each side, at most half of a window
  bool ceil_mode = false;          ///< a last window may reach beyond the padding
  bool count_include_pad = true;   ///< the mean is over the padding as well
};

/// The largest of each window, the first of equals (NaN wins), and its place in its plane, row *
/// width + column, as int64.
struct MaxPool {
  Tensor y;
  Tensor indices;
};

namespace ops {

[[nodiscard]] MaxPool max_pool2d(const Tensor& x, Size2d kernel, const MaxPoolOptions& options);
/// The gradient of an x of shape `x_shape`.
[[nodiscard]] Tensor max_pool2d_backward(const Tensor& grad, const Tensor& indices,
                                         const Shape& x_shape, Size2d kernel,
                                         const MaxPoolOptions& options);

[[nodiscard]] Tensor avg_pool2d(const Tensor& x, Size2d kernel, const AvgPoolOptions& options);
[[nodiscard]] Tensor avg_pool2d_backward(const Tensor& grad, const Shape& x_shape, Size2d kernel,
                                         const AvgPoolOptions& options);

/// Means over windows that cover x as evenly as can be; y is [batch, channels, output height,
/// output width].
[[nodiscard]] Tensor adaptive_avg_pool2d(const Tensor& x, Size2d output);
[[nodiscard]] Tensor adaptive_avg_pool2d_backward(const Tensor& grad, const Shape& x_shape);

}  // namespace ops
}  // namespace capstan

#pragma once

#include "framework/tensor/tensor.h"
#include "ops/conv.h"

namespace capstan {

/// Zeros around an image: a number on each side, or as many as keep its size.
class Padding2d {
 public:
  constexpr Padding2d(std::int64_t both) noexcept : size_(both) {}
  constexpr Padding2d(int both) noexcept : size_(both) {}
  constexpr Padding2d(std::int64_t height, std::int64_t width) noexcept : size_(height, width) {}
  /// dilation * (kernel - 1) zeros along each axis; of an odd number the end gets one more. For a
  /// stride of 1.
  [[nodiscard]] static constexpr Padding2d same() noexcept {
    Padding2d padding(0);
    padding.same_ = true;
    return padding;
  }

  [[nodiscard]] constexpr bool is_same() const noexcept { return same_; }
  /// The number on each side, unless `is_same`.
  [[nodiscard]] constexpr Size2d size() const noexcept { return size_; }

 private:
  Size2d size_;
  bool same_ = false;
};

struct Conv2dOptions {
  Size2d stride = 1;
  Padding2d padding = 0;
  Size2d dilation = 1;
  std::int64_t groups = 1;
};

struct Conv1dOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool same = false;  ///< in place of `padding`: see Padding2d::same
};

/// Cross-correlation of x [batch, channels, height, width] with weight [out_channels, channels /
/// groups, kernel height, kernel width], plus bias [out_channels] if defined; y [batch,
/// out_channels, ...]. Floating operands of one dtype; Autocast lowers them. Differentiable any
/// number of times. On GPUs `set_conv_policy` says how exact and how repeatable.
/// @throws ShapeError, DTypeError, DeviceError, ValueError naming conv2d, what was got, and a
/// remedy.
[[nodiscard]] Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = Tensor(),
                            Conv2dOptions options = {}, Where where = Where::current());
/// The same for x [batch, channels, length] and weight [out_channels, channels / groups, kernel].
[[nodiscard]] Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = Tensor(),
                            Conv1dOptions options = {}, Where where = Where::current());

}  // namespace capstan

#pragma once

#include "framework/tensor/tensor.h"
#include "ops/size2d.h"

// Convolution of images without gradients: cross-correlation, as in PyTorch. x [batch, channels,
// height, width], weight [out_channels, channels / groups, kernel height, kernel width], y [batch,
// out_channels, ...]. Floating dtypes, float16 and bfloat16 summed in float32. On the GPU through
// cuDNN, and only enqueued. @throws ShapeError, DTypeError, DeviceError, ValueError naming conv2d.
namespace capstan::ops {

struct ConvOptions {
  Size2d stride = 1;
  Size2d padding = 0;  ///< zeros on each side
  Size2d dilation = 1;
  std::int64_t groups = 1;
};

/// `bias` [out_channels] or undefined.
[[nodiscard]] Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                            const ConvOptions& options);
/// The gradient of an x of shape `x_shape` for the gradient `grad` of y.
[[nodiscard]] Tensor conv2d_input_gradient(const Tensor& grad, const Tensor& weight,
                                           const Shape& x_shape, const ConvOptions& options);
/// The gradient of a weight of shape `weight_shape`.
[[nodiscard]] Tensor conv2d_weight_gradient(const Tensor& grad, const Tensor& x,
                                            const Shape& weight_shape, const ConvOptions& options);

}  // namespace capstan::ops

namespace capstan {

/// How convolutions run on GPUs, for the whole process; takes effect with the next call.
struct ConvPolicy {
  bool tf32 = true;           ///< float32 factors may be rounded to TF32, as in PyTorch
  bool deterministic = true;  ///< algorithms that give the same bits on every run, and no others
};
[[nodiscard]] ConvPolicy conv_policy() noexcept;
void set_conv_policy(ConvPolicy policy) noexcept;

}  // namespace capstan

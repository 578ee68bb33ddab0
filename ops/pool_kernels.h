#pragma once

#include <cstdint>

#include "framework/core/dtype.h"

// The part of the backend contract that is about pooling; all that ops/kernels.h says at its head
// holds here.
namespace capstan {

class StreamState;

/// One of two axes of an image. The window of output o has the inputs o * stride - padding + k *
/// dilation, 0 <= k < kernel, that are in [0, input), at least one. With kernel 0 windows are as
/// even as can be: [floor(o * input / output), ceil((o + 1) * input / output)).
struct PoolAxis {
  std::int64_t input, output;
  std::int64_t kernel, stride, padding, dilation;
};

/// x is dense [planes, height.input, width.input], y [planes, height.output, width.output].
struct PoolSizes {
  std::int64_t planes;
  PoolAxis height, width;
};

/// y = the largest of each window, the first of equals, NaN wins; indices = where in its plane it
/// is, row * width.input + column. f32 and f64; on the GPU also f16 and bf16, as for all below.
struct MaxPoolArgs {
  const void* x;
  void* y;
  std::int64_t* indices;
  PoolSizes sizes;
  DType dtype;
};

/// dx[i] = sum of grad[o] over all outputs o whose index is i.
struct MaxPoolBackwardArgs {
  const void* grad;
  const std::int64_t* indices;
  void* dx;
  PoolSizes sizes;
  DType dtype;
};

/// avg_pool: y = mean of each window; avg_pool_backward: x = its gradient for the gradient y.
/// `count_padding`: the mean is over padding, too, but not over what lies beyond it. Dilation is 1.
struct AvgPoolArgs {
  void* x;
  void* y;
  PoolSizes sizes;
  bool count_padding;
  DType dtype;
};

namespace cpu {
void max_pool(const MaxPoolArgs& args);
void max_pool_backward(const MaxPoolBackwardArgs& args);
void avg_pool(const AvgPoolArgs& args);
void avg_pool_backward(const AvgPoolArgs& args);
}  // namespace cpu

namespace gpu {
void max_pool(const MaxPoolArgs& args, StreamState& stream);
void max_pool_backward(const MaxPoolBackwardArgs& args, StreamState& stream);
void avg_pool(const AvgPoolArgs& args, StreamState& stream);
void avg_pool_backward(const AvgPoolArgs& args, StreamState& stream);
}  // namespace gpu

}  // namespace capstan

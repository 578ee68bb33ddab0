#pragma once

#include <cstdint>

#include "framework/core/dtype.h"

// The part of the backend contract that is about normalisation; all that ops/kernels.h says at its
// head holds here.
namespace capstan {

class StreamState;

/// A dense tensor seen as [outer, channels, inner]; a channel has outer * inner elements.
struct ChannelSizes {
  std::int64_t outer, channels, inner;
};

/// Per channel: mean and 1 / sqrt(variance + eps), the variance over all elements. Then, unless
/// they are null, running_mean and running_var move by `momentum` (1 / (*batches + 1) if that is
/// not null) towards the mean and the variance, there over one element less. Where x is null, mean
/// and inv_std are those of the running ones, which stay. All but x hold Compute<T>; [channels]
/// each.
struct BatchStatsArgs {
  const void* x;
  void* mean;
  void* inv_std;
  void* running_mean;
  void* running_var;
  const std::int64_t* batches;
  double momentum;
  double eps;
  ChannelSizes sizes;
  DType dtype;
};

/// y = (x - mean) * inv_std * weight + bias; weight and bias may be null. All but x and y hold
/// Compute<T>, [channels].
struct BatchNormArgs {
  const void* x;
  const void* mean;
  const void* inv_std;
  const void* weight;
  const void* bias;
  void* y;
  ChannelSizes sizes;
  DType dtype;
};

/// dbias = sum of grad, dweight = sum of grad * n, n = (x - mean) * inv_std; and unless dx is null,
/// dx = weight * inv_std * grad, minus what flows through the statistics if `through_stats`:
/// weight * inv_std * (dbias + n * dweight) / count. Sums run in double in a fixed order.
struct BatchNormBackwardArgs {
  const void* grad;
  const void* x;
  const void* mean;
  const void* inv_std;
  const void* weight;  // or null
  void* dx;            // or null
  void* dweight;
  void* dbias;
  ChannelSizes sizes;
  bool through_stats;
  DType dtype;
};

namespace cpu {
void batch_stats(const BatchStatsArgs& args);
void batch_norm(const BatchNormArgs& args);
void batch_norm_backward(const BatchNormBackwardArgs& args);
}  // namespace cpu

namespace gpu {
void batch_stats(const BatchStatsArgs& args, StreamState& stream);
void batch_norm(const BatchNormArgs& args, StreamState& stream);
void batch_norm_backward(const BatchNormBackwardArgs& args, StreamState& stream);
}  // namespace gpu

}  // namespace capstan

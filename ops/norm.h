#pragma once

#include <optional>

#include "framework/tensor/tensor.h"

// Batch normalisation without gradients: x [batch, channels, ...], statistics per channel over all
// other axes. Statistics are [channels] in `stats_dtype`. Work on the GPU is only enqueued.
// @throws ShapeError, DTypeError, DeviceError naming the operation.
namespace capstan::ops {

/// Dtype of means, variances and sums for values of `dtype`: float32 for float16 and bfloat16.
[[nodiscard]] DType stats_dtype(DType dtype) noexcept;

/// Mean and 1 / sqrt(variance + eps) of each channel.
struct BatchStats {
  Tensor mean;
  Tensor inv_std;
};

/// Averages that follow the statistics of batches.
struct RunningStats {
  Tensor mean{};  ///< undefined, as `var`: nothing follows
  Tensor var{};
  Tensor batches{};  ///< int64 scalar: how many batches there were before; read on the device
  /// new = (1 - momentum) * old + momentum * batch; empty: 1 / (batches + 1).
  std::optional<double> momentum = 0.1;
};

/// Statistics of x, and the running ones moved in place, the variance as one of a sample.
/// @throws ShapeError for an empty channel, and for less than two values where something follows.
[[nodiscard]] BatchStats batch_stats(const Tensor& x, const RunningStats& running, double eps);
/// The running ones as statistics of `x`; nothing is written to them.
[[nodiscard]] BatchStats fixed_stats(const Tensor& x, const RunningStats& running, double eps);

/// All that `batch_norm` checks but the statistics, for callers that move something before.
void check_batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                      const char* name = "batch_norm");
/// @throws ShapeError for less than two values in a channel, whose variance says nothing.
void check_batch_size(const Tensor& x);

/// (x - mean) * inv_std * weight + bias; weight and bias are [channels], each may be undefined, and
/// has the dtype of x or of the statistics.
[[nodiscard]] Tensor batch_norm(const Tensor& x, const BatchStats& stats, const Tensor& weight,
                                const Tensor& bias);

/// `weight` and `bias` have the dtype of the statistics.
struct BatchNormGradients {
  Tensor x;  ///< undefined unless asked for
  Tensor weight;
  Tensor bias;
};

/// `through_stats`: the statistics came from x. dx only if `wants_dx`.
[[nodiscard]] BatchNormGradients batch_norm_backward(const Tensor& grad, const Tensor& x,
                                                     const BatchStats& stats, const Tensor& weight,
                                                     bool through_stats, bool wants_dx);

}  // namespace capstan::ops

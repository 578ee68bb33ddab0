#pragma once

#include <optional>

#include "framework/tensor/tensor.h"

namespace capstan {

struct BatchNormOptions {
  /// True: normalise by the statistics of x, and move the running ones in place, on the device.
  /// False: normalise by the running ones.
  bool training = false;
  /// The running ones become (1 - momentum) * old + momentum * batch; empty: the average over all
  /// batches, of which `batches` says the number.
  std::optional<double> momentum = 0.1;
  double eps = 1e-5;  ///< is added to the variance
  /// Counts the batches of training: an int64 scalar on the device of x, incremented in place.
  Tensor batches{};
};

/// (x - mean) / sqrt(variance + eps) * weight + bias for x [batch, channels, ...], the statistics
/// per channel. Floating dtypes; weight and bias, [channels] or undefined, in that of x or, for
/// float16 and bfloat16, in float32, in which statistics always are. Without running statistics
/// (both undefined) those of x serve. The running variance is one of a sample (n - 1).
/// Differentiable in x, weight and bias, any number of times (Ioffe and Szegedy 2015).
/// @throws ShapeError, also for less than two values in a channel in training; DTypeError;
///   DeviceError; ValueError for one running tensor without the other, or without momentum and
///   `batches`.
[[nodiscard]] Tensor batch_norm(const Tensor& x, const Tensor& running_mean,
                                const Tensor& running_var, const Tensor& weight = Tensor(),
                                const Tensor& bias = Tensor(), BatchNormOptions options = {},
                                Where where = Where::current());

// The further ones keep no statistics, compute float16 and bfloat16 in float32 and round once, and
// take weight and bias, each of which may be undefined, in the dtype of x or in float32. Autocast
// converts to float32. Differentiable any number of times.
// @throws ShapeError, DTypeError, DeviceError, ValueError naming the function.

/// x minus its mean, over its standard deviation, both over the last axes, whose sizes are `sizes`;
/// times weight [sizes], plus bias [sizes] (Ba et al. 2016).
[[nodiscard]] Tensor layer_norm(const Tensor& x, const Shape& sizes,
                                const Tensor& weight = Tensor(), const Tensor& bias = Tensor(),
                                double eps = 1e-5, Where where = Where::current());
/// The same over each of `groups` equal parts of the channels of x [batch, channels, ...] with all
/// that is in them; weight and bias are [channels] (Wu and He 2018).
[[nodiscard]] Tensor group_norm(const Tensor& x, std::int64_t groups,
                                const Tensor& weight = Tensor(), const Tensor& bias = Tensor(),
                                double eps = 1e-5, Where where = Where::current());
/// x over the root of its mean square over the last axes, whose sizes are `sizes`; times weight
/// [sizes] (Zhang and Sennrich 2019). Without eps: the smallest step at 1 of the dtype it computes
/// in.
[[nodiscard]] Tensor rms_norm(const Tensor& x, const Shape& sizes, const Tensor& weight = Tensor(),
                              std::optional<double> eps = std::nullopt,
                              Where where = Where::current());

}  // namespace capstan

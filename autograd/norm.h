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

}  // namespace capstan

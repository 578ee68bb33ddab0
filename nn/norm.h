#pragma once

#include <optional>

#include "nn/module.h"

namespace capstan::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  ///< empty: the average over all batches
  bool affine = true;                    ///< weight and bias, at first one and zero
  bool track_running_stats = true;       ///< false: the statistics of the batch, in eval() as well
  Device device = Device::cpu();
  DType dtype = DType::float32;
};

/// Normalises each channel of x [batch, channels, ...] over all else: in training by the statistics
/// of x, which the running ones follow in place, on the device, so that replays move them too; in
/// eval() by the running ones. See `batch_norm`. Running statistics of a float16 or bfloat16 module
/// are float32. Errors of `forward` leave the buffers as they were.
class BatchNorm : public Module {
 public:
  [[nodiscard]] Tensor forward(const Tensor& x) override;

  Tensor weight;               ///< [channels]; undefined without `affine`
  Tensor bias;                 ///< likewise
  Tensor running_mean;         ///< [channels]; undefined without `track_running_stats`
  Tensor running_var;          ///< likewise
  Tensor num_batches_tracked;  ///< int64 scalar; likewise

 protected:
  /// `op` begins messages; x has `least` to `most` axes.
  BatchNorm(const char* op, int least, int most, std::int64_t channels,
            const BatchNormOptions& options, const Where& where);

 private:
  const char* op_;
  int least_, most_;
  std::optional<double> momentum_;
  double eps_;
};

/// For x [batch, channels] or [batch, channels, length].
class BatchNorm1d : public BatchNorm {
 public:
  /// @throws ValueError  unless channels >= 1 and eps > 0; DTypeError unless dtype is floating.
  explicit BatchNorm1d(std::int64_t channels, BatchNormOptions options = {},
                       Where where = Where::current())
      : BatchNorm("batch_norm1d", 2, 3, channels, options, where) {}
};

/// For x [batch, channels, height, width].
class BatchNorm2d : public BatchNorm {
 public:
  /// @throws ValueError  unless channels >= 1 and eps > 0; DTypeError unless dtype is floating.
  explicit BatchNorm2d(std::int64_t channels, BatchNormOptions options = {},
                       Where where = Where::current())
      : BatchNorm("batch_norm2d", 4, 4, channels, options, where) {}
};

}  // namespace capstan::nn

#include "ops/norm.h"

#include "framework/runtime/dispatch.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/op_scope.h"
#include "ops/checks.h"
#include "ops/elementwise.h"
#include "ops/norm_kernels.h"

namespace capstan::ops {
namespace {

ChannelSizes channel_sizes(const Tensor& x) {
  const std::int64_t outer = x.size(0);
  const std::int64_t channels = x.size(1);
  return {outer, channels, x.numel() == 0 ? 0 : x.numel() / (outer * channels)};
}

void check_input(const char* name, const Tensor& x) {
  detail::check_floating(name, x);
  CAPSTAN_CHECK(x.rank() >= 2 && x.size(1) >= 1, ShapeError, name,
                ": x must be [batch, channels, ...] with at least one channel, got shape ",
                x.shape());
}

void check_stat(const char* name, const char* what, const Tensor& stat, const Tensor& x) {
  detail::check_shape(name, what, stat, {x.size(1)});
  detail::check_same_device(name, x, stat);
  CAPSTAN_CHECK(stat.dtype() == stats_dtype(x.dtype()), DTypeError, name, ": ", what, " must be ",
                stats_dtype(x.dtype()), " for x of ", x.dtype(), ", got ", describe(stat));
}

void check_running(const char* name, const RunningStats& running, const Tensor& x) {
  CAPSTAN_CHECK(running.mean.defined() && running.var.defined(), ValueError, name,
                ": needs both running_mean and running_var, got ",
                running.mean.defined()  ? "running_mean alone"
                : running.var.defined() ? "running_var alone"
                                        : "neither");
  check_stat(name, "running_mean", running.mean, x);
  check_stat(name, "running_var", running.var, x);
  CAPSTAN_CHECK(running.mean.is_contiguous() && running.var.is_contiguous(), ShapeError, name,
                ": running_mean and running_var must be dense, got strides ",
                running.mean.strides(), " and ", running.var.strides());
}

void check_affine(const char* name, const char* what, const Tensor& parameter, const Tensor& x) {
  if (!parameter.defined()) return;
  detail::check_shape(name, what, parameter, {x.size(1)});
  detail::check_same_device(name, x, parameter);
  const DType wide = stats_dtype(x.dtype());
  CAPSTAN_CHECK(parameter.dtype() == x.dtype() || parameter.dtype() == wide, DTypeError, name, ": ",
                what, " must be ", wide, " or the dtype of x, got ", describe(parameter),
                " for x of ", x.dtype());
}

/// A weight or bias as the kernels take it; undefined stays so.
Tensor affine(const Tensor& parameter, const Tensor& x) {
  if (!parameter.defined()) return {};
  return contiguous(cast(parameter, stats_dtype(x.dtype())));
}

void* address_of(const Tensor& tensor) { return tensor.defined() ? tensor.raw_data() : nullptr; }

BatchStats empty_stats(const Tensor& x) {
  const TensorOptions options{.dtype = stats_dtype(x.dtype()), .device = x.device()};
  return {.mean = empty({x.size(1)}, options), .inv_std = empty({x.size(1)}, options)};
}

}  // namespace

DType stats_dtype(DType dtype) noexcept { return is_half(dtype) ? DType::float32 : dtype; }

BatchStats batch_stats(const Tensor& x, const RunningStats& running, double eps) {
  constexpr const char* kName = "batch_norm";
  check_input(kName, x);
  const bool follows = running.mean.defined() || running.var.defined();
  if (follows) {
    check_running(kName, running, x);
    detail::check_writable(kName, running.mean);
    detail::check_writable(kName, running.var);
  }
  if (running.batches.defined()) {
    detail::check_shape(kName, "batches", running.batches, {});
    detail::check_same_device(kName, x, running.batches);
    CAPSTAN_CHECK(running.batches.dtype() == DType::int64, DTypeError, kName,
                  ": batches must be int64, got ", describe(running.batches));
  }
  CAPSTAN_CHECK(!follows || running.momentum || running.batches.defined(), ValueError, kName,
                ": an average over all batches needs their number, got neither momentum nor "
                "batches; pass one of them");
  const ChannelSizes sizes = channel_sizes(x);
  if (follows || x.numel() == 0) check_batch_size(x);
  const Tensor dense = contiguous(x);
  BatchStats stats = empty_stats(x);
  const Tensor batches = follows && !running.momentum ? running.batches : Tensor();
  const OpScope scope("batch_stats", {&dense, &running.mean, &running.var, &batches},
                      {&stats.mean, &stats.inv_std, &running.mean, &running.var});
  dispatch(x.device(), cpu::batch_stats, gpu::batch_stats,
           BatchStatsArgs{
               .x = dense.raw_data(),
               .mean = stats.mean.raw_data(),
               .inv_std = stats.inv_std.raw_data(),
               .running_mean = address_of(running.mean),
               .running_var = address_of(running.var),
               .batches = static_cast<const std::int64_t*>(address_of(batches)),
               .momentum = running.momentum.value_or(0.0),
               .eps = eps,
               .sizes = sizes,
               .dtype = x.dtype(),
           });
  return stats;
}

BatchStats fixed_stats(const Tensor& x, const RunningStats& running, double eps) {
  constexpr const char* kName = "batch_norm";
  check_input(kName, x);
  check_running(kName, running, x);
  BatchStats stats = empty_stats(x);
  const OpScope scope("fixed_stats", {&running.mean, &running.var}, {&stats.mean, &stats.inv_std});
  dispatch(x.device(), cpu::batch_stats, gpu::batch_stats,
           BatchStatsArgs{
               .x = nullptr,
               .mean = stats.mean.raw_data(),
               .inv_std = stats.inv_std.raw_data(),
               .running_mean = running.mean.raw_data(),
               .running_var = running.var.raw_data(),
               .batches = nullptr,
               .momentum = 0.0,
               .eps = eps,
               .sizes = channel_sizes(x),
               .dtype = x.dtype(),
           });
  return stats;
}

void check_batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const char* name) {
  check_input(name, x);
  check_affine(name, "weight", weight, x);
  check_affine(name, "bias", bias, x);
}

void check_batch_size(const Tensor& x) {
  CAPSTAN_CHECK(x.numel() / x.size(1) >= 2, ShapeError,
                "batch_norm: training needs at least two values in a channel, got x of shape ",
                x.shape(), "; use a larger batch or eval()");
}

Tensor batch_norm(const Tensor& x, const BatchStats& stats, const Tensor& weight,
                  const Tensor& bias) {
  constexpr const char* kName = "batch_norm";
  check_batch_norm(x, weight, bias);
  check_stat(kName, "mean", stats.mean, x);
  check_stat(kName, "inv_std", stats.inv_std, x);
  const Tensor wide_weight = affine(weight, x);
  const Tensor wide_bias = affine(bias, x);
  Tensor y = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  if (x.numel() == 0) return y;
  const Tensor dense = contiguous(x);
  const OpScope scope(kName, {&dense, &stats.mean, &stats.inv_std, &wide_weight, &wide_bias}, {&y});
  dispatch(x.device(), cpu::batch_norm, gpu::batch_norm,
           BatchNormArgs{
               .x = dense.raw_data(),
               .mean = stats.mean.raw_data(),
               .inv_std = stats.inv_std.raw_data(),
               .weight = address_of(wide_weight),
               .bias = address_of(wide_bias),
               .y = y.raw_data(),
               .sizes = channel_sizes(x),
               .dtype = x.dtype(),
           });
  return y;
}

BatchNormGradients batch_norm_backward(const Tensor& grad, const Tensor& x, const BatchStats& stats,
                                       const Tensor& weight, bool through_stats, bool wants_dx) {
  constexpr const char* kName = "batch_norm_backward";
  check_input(kName, x);
  detail::check_shape(kName, "grad", grad, x.shape());
  detail::check_same_device(kName, grad, x);
  detail::check_same_dtype(kName, grad, x);
  check_stat(kName, "mean", stats.mean, x);
  check_stat(kName, "inv_std", stats.inv_std, x);
  check_affine(kName, "weight", weight, x);
  const Tensor wide_weight = affine(weight, x);
  BatchNormGradients gradients;
  const TensorOptions wide{.dtype = stats_dtype(x.dtype()), .device = x.device()};
  gradients.weight = empty({x.size(1)}, wide);
  gradients.bias = empty({x.size(1)}, wide);
  if (wants_dx) {
    gradients.x = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  }
  if (x.numel() == 0) {
    fill(gradients.weight, 0.0);
    fill(gradients.bias, 0.0);
    return gradients;
  }
  const Tensor dense_grad = contiguous(grad);
  const Tensor dense = contiguous(x);
  const OpScope scope(kName, {&dense_grad, &dense, &stats.mean, &stats.inv_std, &wide_weight},
                      {&gradients.x, &gradients.weight, &gradients.bias});
  dispatch(x.device(), cpu::batch_norm_backward, gpu::batch_norm_backward,
           BatchNormBackwardArgs{
               .grad = dense_grad.raw_data(),
               .x = dense.raw_data(),
               .mean = stats.mean.raw_data(),
               .inv_std = stats.inv_std.raw_data(),
               .weight = address_of(wide_weight),
               .dx = address_of(gradients.x),
               .dweight = gradients.weight.raw_data(),
               .dbias = gradients.bias.raw_data(),
               .sizes = channel_sizes(x),
               .through_stats = through_stats,
               .dtype = x.dtype(),
           });
  return gradients;
}

}  // namespace capstan::ops

#include "autograd/norm.h"

#include <limits>

#include "autograd/arithmetic.h"
#include "autograd/autocast_policy.h"
#include "autograd/math.h"
#include "autograd/node.h"
#include "autograd/reduce.h"
#include "ops/checks.h"
#include "ops/elementwise.h"
#include "ops/norm.h"

// As in activations.cpp: fused kernels, unless the gradient is to be differentiated again.
namespace capstan {

using autograd::autocast;
using autograd::autocasts;
using autograd::BackwardContext;
using autograd::CastTo;
using autograd::needs_grad;
using autograd::record;
using autograd::Saved;

namespace {

/// Every axis but that of the channels.
[[nodiscard]] Axes other_axes(const Tensor& x) {
  Axes axes{0};
  for (int axis = 2; axis < x.rank(); ++axis) axes.push_back(axis);
  return axes;
}

/// [channels] as [1, channels, 1, ...].
[[nodiscard]] Tensor along_channels(const Tensor& values, const Tensor& x) {
  Shape shape{1, x.size(1)};
  for (int axis = 2; axis < x.rank(); ++axis) shape.push_back(1);
  return values.reshape(shape);
}

struct Statistics {
  Saved mean, inv_std;
  bool of_batch;
  double eps;
};

struct ParameterDTypes {
  DType weight, bias;
};

void composed_backward(BackwardContext& context, const Tensor& x, const Tensor& weight,
                       const Statistics& stats, ParameterDTypes dtypes) {
  const Tensor& grad = context.grad();
  const DType wide = ops::stats_dtype(x.dtype());
  const Axes axes = other_axes(x);
  const Tensor g = grad.to(wide);
  Tensor inv_std = along_channels(stats.inv_std.get(context), x);
  Tensor centred;
  if (stats.of_batch) {
    // The statistics depend on x, which the saved ones do not show.
    const Tensor wide_x = x.to(wide);
    centred = wide_x - mean(wide_x, axes, true);
    inv_std = rsqrt(mean(square(centred), axes, true) + stats.eps);
  } else {
    centred = x.to(wide) - along_channels(stats.mean.get(context), x);
  }
  const Tensor normal = centred * inv_std;
  if (context.needs(0)) {
    const Tensor scaled = weight.defined() ? g * along_channels(weight.to(wide), x) : g;
    const Tensor dx = stats.of_batch ? inv_std * (scaled - mean(scaled, axes, true) -
                                                  normal * mean(scaled * normal, axes, true))
                                     : inv_std * scaled;
    context.set(0, dx.to(x.dtype()));
  }
  if (context.needs(1)) context.set(1, sum(g * normal, axes).to(dtypes.weight));
  if (context.needs(2)) context.set(2, sum(g, axes).to(dtypes.bias));
}

void fused_backward(BackwardContext& context, const Tensor& x, const Tensor& weight,
                    const Statistics& stats, ParameterDTypes dtypes) {
  const ops::BatchNormGradients gradients = ops::batch_norm_backward(
      context.grad(), x, {.mean = stats.mean.get(context), .inv_std = stats.inv_std.get(context)},
      weight, stats.of_batch, context.needs(0));
  if (context.needs(0)) context.set(0, gradients.x);
  if (context.needs(1)) context.set(1, gradients.weight.to(dtypes.weight));
  if (context.needs(2)) context.set(2, gradients.bias.to(dtypes.bias));
}

/// Statistics to normalise x by; moves the running ones and counts the batch where it should.
[[nodiscard]] ops::BatchStats statistics(const Tensor& x, const ops::RunningStats& running,
                                         const BatchNormOptions& options) {
  if (!options.training && running.mean.defined()) {
    return ops::fixed_stats(x, running, options.eps);
  }
  if (!options.training) return ops::batch_stats(x, {}, options.eps);
  const ops::BatchStats stats = ops::batch_stats(x, running, options.eps);
  if (options.batches.defined()) {
    ops::binary_out(BinaryOp::add, options.batches, 1.0, options.batches);
  }
  return stats;
}

/// The recorded part of batch normalisation, under the name of who calls.
[[nodiscard]] Tensor normalise(const char* name, const Tensor& x, const ops::BatchStats& stats,
                               const Tensor& weight, const Tensor& bias, bool of_batch,
                               double eps) {
  Tensor y = ops::batch_norm(x, stats, weight, bias);
  if (needs_grad(x, weight, bias)) {
    const Statistics kept{Saved(stats.mean), Saved(stats.inv_std), of_batch, eps};
    const ParameterDTypes dtypes{weight.defined() ? weight.dtype() : x.dtype(),
                                 bias.defined() ? bias.dtype() : x.dtype()};
    record(y, name, {&x, &weight, &bias},
           [x = Saved(x), weight = Saved(weight), kept, dtypes](BackwardContext& context) {
             const auto backward = grad_enabled() ? composed_backward : fused_backward;
             backward(context, x.get(context), weight.get(context), kept, dtypes);
           });
  }
  return y;
}

/// Each `length` elements of x with mean 0 and variance 1, in the dtype of statistics: rows are the
/// channels of a batch of one.
[[nodiscard]] Tensor normalise_rows(const char* name, const Tensor& x, std::int64_t length,
                                    double eps) {
  const Tensor wide = x.to(ops::stats_dtype(x.dtype()));
  if (x.numel() == 0) return wide;
  const Tensor rows = wide.reshape({1, x.numel() / length, length});
  return normalise(name, rows, ops::batch_stats(rows, {}, eps), {}, {}, true, eps)
      .reshape(x.shape());
}

[[nodiscard]] Tensor scale_and_shift(const Tensor& normal, const Tensor& weight,
                                     const Tensor& bias) {
  const Tensor scaled = weight.defined() ? normal * weight : normal;
  return bias.defined() ? scaled + bias : scaled;
}

void check_last_axes(const char* name, const Tensor& x, const Shape& sizes) {
  ops::detail::check_floating(name, x);
  bool fits = sizes.rank() >= 1 && sizes.numel() >= 1 && x.rank() >= sizes.rank();
  for (int back = 1; fits && back <= sizes.rank(); ++back) fits = x.size(-back) == sizes[-back];
  CAPSTAN_CHECK(fits, ShapeError, name, ": the last axes of x must have the sizes ", sizes,
                ", at least one and none empty, got x of shape ", x.shape());
}

void check_parameter(const char* name, const char* what, const Tensor& parameter,
                     const Shape& shape, const Tensor& x) {
  if (!parameter.defined()) return;
  ops::detail::check_shape(name, what, parameter, shape);
  ops::detail::check_same_device(name, x, parameter);
  CAPSTAN_CHECK(parameter.dtype() == x.dtype() || parameter.dtype() == ops::stats_dtype(x.dtype()),
                DTypeError, name, ": ", what, " must be ", ops::stats_dtype(x.dtype()),
                " or the dtype of x, got ", describe(parameter), " for x of ", x.dtype());
}

void check_pair(const Tensor& running_mean, const Tensor& running_var) {
  CAPSTAN_CHECK(running_mean.defined() == running_var.defined(), ValueError,
                "batch_norm: needs both running_mean and running_var or neither, got ",
                running_mean.defined() ? "running_mean" : "running_var", " alone");
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight, const Tensor& bias, BatchNormOptions options, Where where) {
  const CallSite site(where);
  check_pair(running_mean, running_var);
  ops::check_batch_norm(x, weight, bias);
  if (options.training || !running_mean.defined()) ops::check_batch_size(x);
  const ops::BatchStats stats = statistics(x,
                                           {.mean = running_mean,
                                            .var = running_var,
                                            .batches = options.batches,
                                            .momentum = options.momentum},
                                           options);
  return normalise("batch_norm", x, stats, weight, bias,
                   options.training || !running_mean.defined(), options.eps);
}

Tensor layer_norm(const Tensor& x, const Shape& sizes, const Tensor& weight, const Tensor& bias,
                  double eps, Where where) {
  const CallSite site(where);
  constexpr const char* kName = "layer_norm";
  if (autocasts(CastTo::float32, x, weight, bias)) [[unlikely]] {
    return layer_norm(autocast(CastTo::float32, x), sizes, autocast(CastTo::float32, weight),
                      autocast(CastTo::float32, bias), eps, where);
  }
  check_last_axes(kName, x, sizes);
  check_parameter(kName, "weight", weight, sizes, x);
  check_parameter(kName, "bias", bias, sizes, x);
  const Tensor normal = normalise_rows(kName, x, sizes.numel(), eps);
  return scale_and_shift(normal, weight, bias).to(x.dtype());
}

Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps, Where where) {
  const CallSite site(where);
  constexpr const char* kName = "group_norm";
  if (autocasts(CastTo::float32, x, weight, bias)) [[unlikely]] {
    return group_norm(autocast(CastTo::float32, x), groups, autocast(CastTo::float32, weight),
                      autocast(CastTo::float32, bias), eps, where);
  }
  ops::check_batch_norm(x, {}, {}, kName);
  const std::int64_t channels = x.size(1);
  CAPSTAN_CHECK(groups >= 1 && channels % groups == 0, ValueError, kName,
                ": groups must divide the channels, got ", groups, " groups and x of shape ",
                x.shape());
  check_parameter(kName, "weight", weight, {channels}, x);
  check_parameter(kName, "bias", bias, {channels}, x);
  const std::int64_t rows = x.size(0) * groups;
  const Tensor normal = normalise_rows(kName, x, rows == 0 ? 0 : x.numel() / rows, eps);
  const auto along = [&](const Tensor& t) { return t.defined() ? along_channels(t, x) : t; };
  return scale_and_shift(normal, along(weight), along(bias)).to(x.dtype());
}

Tensor rms_norm(const Tensor& x, const Shape& sizes, const Tensor& weight,
                std::optional<double> eps, Where where) {
  const CallSite site(where);
  constexpr const char* kName = "rms_norm";
  if (autocasts(CastTo::float32, x, weight)) [[unlikely]] {
    return rms_norm(autocast(CastTo::float32, x), sizes, autocast(CastTo::float32, weight), eps,
                    where);
  }
  check_last_axes(kName, x, sizes);
  check_parameter(kName, "weight", weight, sizes, x);
  const Tensor wide = x.to(ops::stats_dtype(x.dtype()));
  const double least = wide.dtype() == DType::float64 ? std::numeric_limits<double>::epsilon()
                                                      : std::numeric_limits<float>::epsilon();
  Axes axes;
  for (int back = sizes.rank(); back >= 1; --back) axes.push_back(-back);
  const Tensor normal =
      wide * rsqrt(mean(square(wide), axes, /*keepdim=*/true) + eps.value_or(least));
  return scale_and_shift(normal, weight, Tensor()).to(x.dtype());
}

}  // namespace capstan

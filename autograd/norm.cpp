#include "autograd/norm.h"

#include "autograd/arithmetic.h"
#include "autograd/math.h"
#include "autograd/node.h"
#include "autograd/reduce.h"
#include "ops/elementwise.h"
#include "ops/norm.h"

// As in activations.cpp: fused kernels, unless the gradient is to be differentiated again.
namespace capstan {

using autograd::BackwardContext;
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
  const ops::BatchStats stats = statistics(x,
                                           {.mean = running_mean,
                                            .var = running_var,
                                            .batches = options.batches,
                                            .momentum = options.momentum},
                                           options);
  Tensor y = ops::batch_norm(x, stats, weight, bias);
  if (needs_grad(x, weight, bias)) {
    const Statistics kept{Saved(stats.mean), Saved(stats.inv_std),
                          options.training || !running_mean.defined(), options.eps};
    const ParameterDTypes dtypes{weight.defined() ? weight.dtype() : x.dtype(),
                                 bias.defined() ? bias.dtype() : x.dtype()};
    record(y, "batch_norm", {&x, &weight, &bias},
           [x = Saved(x), weight = Saved(weight), kept, dtypes](BackwardContext& context) {
             const auto backward = grad_enabled() ? composed_backward : fused_backward;
             backward(context, x.get(context), weight.get(context), kept, dtypes);
           });
  }
  return y;
}

}  // namespace capstan

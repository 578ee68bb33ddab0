#include "nn/norm.h"

#include "autograd/norm.h"
#include "framework/tensor/factory.h"
#include "ops/creation.h"
#include "ops/norm.h"

namespace capstan::nn {

BatchNorm::BatchNorm(const char* op, int least, int most, std::int64_t channels,
                     const BatchNormOptions& options, const Where& where)
    : op_(op), least_(least), most_(most), momentum_(options.momentum), eps_(options.eps) {
  const CallSite site(where);
  CAPSTAN_CHECK(channels >= 1, ValueError, op, ": needs at least one channel, got ", channels);
  CAPSTAN_CHECK(options.eps > 0.0, ValueError, op, ": eps must be positive, got ", options.eps);
  CAPSTAN_CHECK(is_floating(options.dtype), DTypeError, op, ": dtype must be floating, got ",
                options.dtype);

  const TensorOptions place{.dtype = options.dtype, .device = options.device};
  if (options.affine) {
    weight = register_parameter("weight", ones({channels}, place));
    bias = register_parameter("bias", zeros({channels}, place));
  }
  if (options.track_running_stats) {
    const TensorOptions wide{.dtype = ops::stats_dtype(options.dtype), .device = options.device};
    running_mean = register_buffer("running_mean", zeros({channels}, wide));
    running_var = register_buffer("running_var", ones({channels}, wide));
    num_batches_tracked = register_buffer(
        "num_batches_tracked", zeros({}, {.dtype = DType::int64, .device = options.device}));
  }
}

Tensor BatchNorm::forward(const Tensor& x) {
  CAPSTAN_CHECK(x.rank() >= least_ && x.rank() <= most_, ShapeError, op_, ": x must be ",
                least_ == 4 ? "[batch, channels, height, width]"
                            : "[batch, channels] or [batch, channels, length]",
                ", got shape ", x.shape());
  return batch_norm(x, running_mean, running_var, weight, bias,
                    {.training = is_training(),
                     .momentum = momentum_,
                     .eps = eps_,
                     .batches = num_batches_tracked});
}

}  // namespace capstan::nn

#include "nn/layer_norm.h"

#include "autograd/norm.h"
#include "framework/tensor/factory.h"
#include "ops/creation.h"

namespace capstan::nn {
namespace {

void check_options(const char* op, const Shape& sizes, double eps, DType dtype) {
  CAPSTAN_CHECK(sizes.rank() >= 1 && sizes.numel() >= 1, ValueError, op,
                ": sizes must be at least 1, got ", sizes);
  CAPSTAN_CHECK(eps > 0.0, ValueError, op, ": eps must be positive, got ", eps);
  CAPSTAN_CHECK(is_floating(dtype), DTypeError, op, ": dtype must be floating, got ", dtype);
}

}  // namespace

LayerNorm::LayerNorm(Shape sizes, LayerNormOptions options, Where where)
    : sizes_(sizes), eps_(options.eps) {
  const CallSite site(where);
  check_options("layer_norm", sizes, options.eps, options.dtype);
  const TensorOptions place{.dtype = options.dtype, .device = options.device};
  if (!options.affine) return;
  weight = register_parameter("weight", ones(sizes, place));
  if (options.bias) bias = register_parameter("bias", zeros(sizes, place));
}

Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, sizes_, weight, bias, eps_); }

GroupNorm::GroupNorm(std::int64_t groups, std::int64_t channels, GroupNormOptions options,
                     Where where)
    : groups_(groups), eps_(options.eps) {
  const CallSite site(where);
  CAPSTAN_CHECK(groups >= 1 && channels >= 1 && channels % groups == 0, ValueError,
                "group_norm: groups must divide the channels, got ", groups, " groups and ",
                channels, " channels");
  check_options("group_norm", {channels}, options.eps, options.dtype);
  const TensorOptions place{.dtype = options.dtype, .device = options.device};
  if (!options.affine) return;
  weight = register_parameter("weight", ones({channels}, place));
  bias = register_parameter("bias", zeros({channels}, place));
}

Tensor GroupNorm::forward(const Tensor& x) { return group_norm(x, groups_, weight, bias, eps_); }

RMSNorm::RMSNorm(Shape sizes, RMSNormOptions options, Where where)
    : sizes_(sizes), eps_(options.eps) {
  const CallSite site(where);
  check_options("rms_norm", sizes, options.eps.value_or(1.0), options.dtype);
  if (!options.affine) return;
  weight =
      register_parameter("weight", ones(sizes, {.dtype = options.dtype, .device = options.device}));
}

Tensor RMSNorm::forward(const Tensor& x) { return rms_norm(x, sizes_, weight, eps_); }

}  // namespace capstan::nn

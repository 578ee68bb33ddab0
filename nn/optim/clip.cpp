#include "nn/optim/clip.h"

#include <cmath>

#include "autograd/grad_mode.h"
#include "autograd/layout.h"
#include "framework/runtime/forbidden.h"
#include "framework/tensor/factory.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

namespace capstan::nn {
namespace {

std::vector<Tensor> gradients_of(const char* op, const std::vector<Tensor>& parameters) {
  std::vector<Tensor> gradients;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor grad = parameters[i].grad();
    if (!grad.defined()) continue;
    gradients.push_back(grad);
    CAPSTAN_CHECK(grad.device() == gradients[0].device(), DeviceError, op,
                  ": the gradient of parameter ", i, " is on ", grad.device(),
                  " but others are on ", gradients[0].device(), "; clip each device by itself");
  }
  return gradients;
}

// In float32 at least: squares of halves overflow at 256.
Tensor widened(const Tensor& x) {
  return x.dtype() == DType::float64 ? x : ops::cast(x, DType::float32);
}

Tensor norm_of(const Tensor& x, double p) {
  if (std::isinf(p)) {
    if (x.numel() == 0) return zeros({}, {.dtype = x.dtype(), .device = x.device()});
    return ops::reduce(ReduceOp::max, ops::unary(UnaryOp::abs, x));
  }
  if (p == 2.0) {
    const Tensor squares = ops::unary(UnaryOp::square, x);
    return ops::unary(UnaryOp::sqrt, ops::reduce(ReduceOp::sum, squares));
  }
  const Tensor magnitudes = ops::unary(UnaryOp::abs, x);
  if (p == 1.0) return ops::reduce(ReduceOp::sum, magnitudes);
  const Tensor powers = ops::binary(BinaryOp::pow, magnitudes, p);
  return ops::binary(BinaryOp::pow, ops::reduce(ReduceOp::sum, powers), 1.0 / p);
}

}  // namespace

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                       ClipNormOptions options, Where where) {
  const CallSite site(where);
  constexpr const char* kName = "clip_grad_norm_";
  CAPSTAN_CHECK(max_norm >= 0.0, ValueError, kName, ": max_norm must be at least 0, got ",
                max_norm);
  CAPSTAN_CHECK(options.norm_type > 0.0, ValueError, kName,
                ": norm_type must be positive or infinity, got ", options.norm_type);
  const std::vector<Tensor> gradients = gradients_of(kName, parameters);
  if (gradients.empty()) return zeros({});
  if (options.error_if_nonfinite) {
    refuse_while_capturing(gradients[0].device(), Forbidden::clip_grad_norm);
  }
  const NoGradGuard no_grad;
  std::vector<Tensor> norms;
  for (const Tensor& grad : gradients) {
    norms.push_back(norm_of(widened(grad), options.norm_type).unsqueeze(0));
  }
  const Tensor norm = norm_of(cat(norms), options.norm_type);
  if (options.error_if_nonfinite) {
    const double value = norm.item();
    CAPSTAN_CHECK(std::isfinite(value), ValueError, kName, ": the norm of the gradients is ", value,
                  "; look for the loss that made it, or leave error_if_nonfinite out");
  }
  const Tensor ratio = ops::binary(BinaryOp::div, max_norm, ops::binary(BinaryOp::add, norm, 1e-6));
  const Tensor factor = ops::binary(BinaryOp::minimum, ratio, 1.0);
  for (const Tensor& grad : gradients) {
    ops::binary_out(BinaryOp::mul, grad, ops::cast(factor, grad.dtype()), grad);
  }
  return norm;
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value, Where where) {
  const CallSite site(where);
  CAPSTAN_CHECK(clip_value >= 0.0, ValueError,
                "clip_grad_value_: clip_value must be at least 0, got ", clip_value);
  for (const Tensor& grad : gradients_of("clip_grad_value_", parameters)) {
    ops::binary_out(BinaryOp::minimum, grad, clip_value, grad);
    ops::binary_out(BinaryOp::maximum, grad, -clip_value, grad);
  }
}

}  // namespace capstan::nn

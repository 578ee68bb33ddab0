#include "ops/conv.h"

#include <atomic>
#include <limits>

#include "framework/runtime/dispatch.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/op_scope.h"
#include "ops/checks.h"
#include "ops/conv_kernels.h"
#include "ops/elementwise.h"

namespace capstan {
namespace {

std::atomic<ConvPolicy> policy_now{ConvPolicy{}};

}  // namespace

ConvPolicy conv_policy() noexcept { return policy_now.load(); }
void set_conv_policy(ConvPolicy policy) noexcept { policy_now.store(policy); }

namespace ops {
namespace {

constexpr const char* kName = "conv2d";

void check_size(const char* what, Size2d size, std::int64_t least) {
  // Bounded, so that no product of two overflows.
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  CAPSTAN_CHECK(
      size.height >= least && size.width >= least && size.height <= kMost && size.width <= kMost,
      ValueError, kName, ": ", what, " must be at least ", least, ", got ", size.height, " and ",
      size.width);
}

void check_options(const ConvOptions& options) {
  check_size("stride", options.stride, 1);
  check_size("padding", options.padding, 0);
  check_size("dilation", options.dilation, 1);
  CAPSTAN_CHECK(options.groups >= 1, ValueError, kName, ": groups must be at least 1, got ",
                options.groups);
}

ConvAxis axis_of(const char* what, std::int64_t input, std::int64_t kernel, std::int64_t stride,
                 std::int64_t padding, std::int64_t dilation) {
  const std::int64_t reach = dilation * (kernel - 1) + 1;
  const std::int64_t room = input + 2 * padding;
  CAPSTAN_CHECK(reach <= room, ShapeError, kName, ": the kernel's ", what, " of ", kernel,
                " reaches over ", reach, ", more than the ", room,
                " of x with its padding; pad more or use a smaller kernel");
  return {input, kernel, (room - reach) / stride + 1, stride, padding, dilation};
}

/// All sizes of a convolution of an `x` with a `weight` of these shapes.
ConvSizes sizes_of(const Shape& x, const Shape& weight, const ConvOptions& options) {
  check_options(options);
  CAPSTAN_CHECK(x.rank() == 4, ShapeError, kName,
                ": x must be [batch, channels, height, width], got shape ", x,
                "; add a batch with unsqueeze(0)");
  CAPSTAN_CHECK(weight.rank() == 4 && weight.numel() > 0, ShapeError, kName,
                ": weight must be [out_channels, channels / groups, height, width], all at least "
                "1, got shape ",
                weight);
  const std::int64_t groups = options.groups;
  CAPSTAN_CHECK(x[1] == weight[1] * groups, ShapeError, kName, ": x must have ", weight[1] * groups,
                " channels to match weight ", weight, " in ", groups, " groups, got x of shape ",
                x);
  CAPSTAN_CHECK(weight[0] % groups == 0, ShapeError, kName,
                ": the number of output channels must be a multiple of groups, got weight ", weight,
                " and groups ", groups);
  return {.batch = x[0],
          .groups = groups,
          .in = weight[1],
          .out = weight[0] / groups,
          .height = axis_of("height", x[2], weight[2], options.stride.height,
                            options.padding.height, options.dilation.height),
          .width = axis_of("width", x[3], weight[3], options.stride.width, options.padding.width,
                           options.dilation.width)};
}

Shape output_shape(const ConvSizes& sizes) {
  return {sizes.batch, sizes.groups * sizes.out, sizes.height.output, sizes.width.output};
}

void check_pair(const Tensor& a, const Tensor& b) {
  detail::check_same_device(kName, a, b);
  detail::check_same_dtype(kName, a, b);
  detail::check_floating(kName, a);
}

ConvArgs args_of(const Tensor& x, const Tensor& weight, const Tensor& y, const ConvSizes& sizes) {
  const ConvPolicy policy = conv_policy();
  return {.x = x.raw_data(),
          .weight = weight.raw_data(),
          .y = y.raw_data(),
          .bias = nullptr,
          .sizes = sizes,
          .tf32 = policy.tf32,
          .deterministic = policy.deterministic,
          .dtype = y.dtype()};
}

/// The CPU has no arithmetic for 16-bit elements: they are computed in float32, and rounded once.
bool widens(const Tensor& x) { return is_half(x.dtype()) && !x.device().is_gpu(); }
Tensor wide(const Tensor& x) { return x.defined() ? cast(x, DType::float32) : x; }

Tensor result(const Shape& shape, const Tensor& like) {
  return empty(shape, {.dtype = like.dtype(), .device = like.device()});
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const ConvOptions& options) {
  check_pair(x, weight);
  const ConvSizes sizes = sizes_of(x.shape(), weight.shape(), options);
  if (bias.defined()) {
    check_pair(x, bias);
    detail::check_shape(kName, "bias", bias, {weight.size(0)});
  }
  if (widens(x)) return cast(conv2d(wide(x), wide(weight), wide(bias), options), x.dtype());
  Tensor y = result(output_shape(sizes), x);
  if (y.numel() == 0) return y;
  const Tensor dense = contiguous(x);
  const Tensor dense_weight = contiguous(weight);
  const Tensor dense_bias = bias.defined() ? contiguous(bias) : bias;
  ConvArgs args = args_of(dense, dense_weight, y, sizes);
  if (bias.defined()) args.bias = dense_bias.raw_data();
  const OpScope scope(kName, {&dense, &dense_weight, &dense_bias}, {&y});
  dispatch(x.device(), cpu::conv, gpu::conv, args);
  return y;
}

Tensor conv2d_input_gradient(const Tensor& grad, const Tensor& weight, const Shape& x_shape,
                             const ConvOptions& options) {
  check_pair(grad, weight);
  const ConvSizes sizes = sizes_of(x_shape, weight.shape(), options);
  detail::check_shape(kName, "the gradient", grad, output_shape(sizes));
  if (widens(grad)) {
    return cast(conv2d_input_gradient(wide(grad), wide(weight), x_shape, options), grad.dtype());
  }
  Tensor dx = result(x_shape, grad);
  if (dx.numel() == 0) return dx;
  const Tensor dense = contiguous(grad);
  const Tensor dense_weight = contiguous(weight);
  const OpScope scope("conv2d_input_gradient", {&dense, &dense_weight}, {&dx});
  dispatch(grad.device(), cpu::conv_input_gradient, gpu::conv_input_gradient,
           args_of(dx, dense_weight, dense, sizes));
  return dx;
}

Tensor conv2d_weight_gradient(const Tensor& grad, const Tensor& x, const Shape& weight_shape,
                              const ConvOptions& options) {
  check_pair(grad, x);
  const ConvSizes sizes = sizes_of(x.shape(), weight_shape, options);
  detail::check_shape(kName, "the gradient", grad, output_shape(sizes));
  if (widens(grad)) {
    return cast(conv2d_weight_gradient(wide(grad), wide(x), weight_shape, options), grad.dtype());
  }
  Tensor dweight = result(weight_shape, grad);
  if (grad.numel() == 0) {
    fill(dweight, 0.0);
    return dweight;
  }
  const Tensor dense_grad = contiguous(grad);
  const Tensor dense = contiguous(x);
  const OpScope scope("conv2d_weight_gradient", {&dense_grad, &dense}, {&dweight});
  dispatch(grad.device(), cpu::conv_weight_gradient, gpu::conv_weight_gradient,
           args_of(dense, dweight, dense_grad, sizes));
  return dweight;
}

}  // namespace ops
}  // namespace capstan

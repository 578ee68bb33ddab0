#include "nn/conv.h"

#include <cmath>

#include "framework/tensor/factory.h"
#include "nn/init.h"

namespace capstan::nn {
namespace {

struct Parameters {
  Tensor weight, bias;
};

/// Checks what conv2d and conv1d would refuse at each call, and draws the initial values.
template <typename Options>
Parameters make_parameters(const char* op, std::int64_t in, std::int64_t out,
                           std::initializer_list<std::int64_t> kernel, const Options& options) {
  CAPSTAN_CHECK(in >= 1 && out >= 1, ValueError, op,
                ": channels must be at least 1, got in_channels ", in, " and out_channels ", out);
  CAPSTAN_CHECK(options.groups >= 1 && in % options.groups == 0 && out % options.groups == 0,
                ValueError, op, ": groups must divide in_channels and out_channels, got groups ",
                options.groups, ", in_channels ", in, " and out_channels ", out);
  CAPSTAN_CHECK(is_floating(options.dtype), DTypeError, op, ": dtype must be floating, got ",
                options.dtype);
  Shape shape{out, in / options.groups};
  for (const std::int64_t size : kernel) {
    CAPSTAN_CHECK(size >= 1, ValueError, op, ": the kernel must be at least 1 long, got ", size);
    shape.push_back(size);
  }
  const TensorOptions place{.dtype = options.dtype, .device = options.device};
  Parameters parameters{.weight = empty(shape, place), .bias = {}};
  const double fan_in = static_cast<double>(shape.numel() / out);
  const double bound = 1.0 / std::sqrt(fan_in);
  init::uniform_(parameters.weight, -bound, bound, options.generator);
  if (options.bias) {
    parameters.bias = empty({out}, place);
    init::uniform_(parameters.bias, -bound, bound, options.generator);
  }
  return parameters;
}

void check_steps(const char* op, Size2d stride, Padding2d padding, Size2d dilation) {
  CAPSTAN_CHECK(stride.height >= 1 && stride.width >= 1, ValueError, op,
                ": stride must be at least 1, got ", stride.height, " and ", stride.width);
  CAPSTAN_CHECK(dilation.height >= 1 && dilation.width >= 1, ValueError, op,
                ": dilation must be at least 1, got ", dilation.height, " and ", dilation.width);
  CAPSTAN_CHECK(padding.is_same() || (padding.size().height >= 0 && padding.size().width >= 0),
                ValueError, op, ": padding must be at least 0, got ", padding.size().height,
                " and ", padding.size().width);
  CAPSTAN_CHECK(!padding.is_same() || stride == Size2d(1), ValueError, op,
                ": padding `same` needs a stride of 1, got ", stride.height, " and ", stride.width);
}

}  // namespace

Conv2d::Conv2d(std::int64_t in_channels, std::int64_t out_channels, Size2d kernel,
               Conv2dOptions options, Where where)
    : options_{options.stride, options.padding, options.dilation, options.groups} {
  const CallSite site(where);
  check_steps("conv2d", options.stride, options.padding, options.dilation);
  const Parameters made =
      make_parameters("conv2d", in_channels, out_channels, {kernel.height, kernel.width}, options);
  weight = register_parameter("weight", made.weight);
  if (options.bias) bias = register_parameter("bias", made.bias);
}

Tensor Conv2d::forward(const Tensor& x) { return conv2d(x, weight, bias, options_); }

Conv1d::Conv1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel,
               Conv1dOptions options, Where where)
    : options_{options.stride, options.padding, options.dilation, options.groups, options.same} {
  const CallSite site(where);
  CAPSTAN_CHECK(options.padding >= 0, ValueError, "conv1d: padding must be at least 0, got ",
                options.padding);
  check_steps("conv1d", options.stride,
              options.same ? Padding2d::same() : Padding2d(options.padding), options.dilation);
  const Parameters made = make_parameters("conv1d", in_channels, out_channels, {kernel}, options);
  weight = register_parameter("weight", made.weight);
  if (options.bias) bias = register_parameter("bias", made.bias);
}

Tensor Conv1d::forward(const Tensor& x) { return conv1d(x, weight, bias, options_); }

}  // namespace capstan::nn

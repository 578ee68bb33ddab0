#pragma once

#include <cstdint>

#include "framework/core/dtype.h"

// The part of the backend contract that is about convolution; all that ops/kernels.h says at its
// head holds here.
namespace capstan {

class StreamState;

/// One of two axes of an image and how the kernel moves along it: output o meets input
/// o * stride - padding + k * dilation at tap k. Inputs outside of [0, input) are zero.
struct ConvAxis {
  std::int64_t input, kernel, output;
  std::int64_t stride, padding, dilation;
};

/// Group g of `groups` maps channels [g * in, (g + 1) * in) of x to [g * out, (g + 1) * out) of y.
struct ConvSizes {
  std::int64_t batch, groups;
  std::int64_t in, out;  // channels of one group
  ConvAxis height, width;
};

/// x [batch, groups * in, height.input, width.input],
/// weight [groups * out, in, height.kernel, width.kernel],
/// y [batch, groups * out, height.output, width.output], all dense.
///
/// conv                  y = x * weight + bias (cross-correlation)
/// conv_input_gradient   x = its gradient for the gradient y
/// conv_weight_gradient  weight = its gradient for the gradient y
///
/// Each reads the two others. f32 and f64; on the GPU f16 and bf16, too, summed in f32.
struct ConvArgs {
  void* x;
  void* weight;
  void* y;
  const void* bias;  // [groups * out] or null; conv alone
  ConvSizes sizes;
  bool tf32;           // GPU: f32 products may round their factors to 10 bits
  bool deterministic;  // GPU: the same bits on every run
  DType dtype;
};

namespace cpu {
void conv(const ConvArgs& args);
void conv_input_gradient(const ConvArgs& args);
void conv_weight_gradient(const ConvArgs& args);
}  // namespace cpu

namespace gpu {
void conv(const ConvArgs& args, StreamState& stream);
void conv_input_gradient(const ConvArgs& args, StreamState& stream);
void conv_weight_gradient(const ConvArgs& args, StreamState& stream);
}  // namespace gpu

}  // namespace capstan

#pragma once

#include "autograd/conv.h"
#include "framework/random/generator.h"
#include "nn/module.h"

namespace capstan::nn {

struct Conv2dOptions {
  Size2d stride = 1;
  Padding2d padding = 0;  ///< or Padding2d::same()
  Size2d dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  Device device = Device::cpu();
  DType dtype = DType::float32;
  /// Draws the initial values; else the device's default generator.
  const Generator* generator = nullptr;
};

struct Conv1dOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool same = false;  ///< in place of `padding`: as many zeros as keep the length
  bool bias = true;
  Device device = Device::cpu();
  DType dtype = DType::float32;
  const Generator* generator = nullptr;  ///< as in Conv2dOptions
};

/// `conv2d` with a weight [out_channels, in_channels / groups, kernel height, kernel width] and a
/// bias [out_channels]. Initialised as PyTorch does: both uniform in +-1/sqrt(in_channels / groups
/// * kernel height * kernel width).
class Conv2d : public Module {
 public:
  /// @throws ValueError  unless channels and kernel are at least 1, groups divides both numbers of
  ///   channels, and the options are those of `conv2d`; DTypeError unless dtype is floating.
  Conv2d(std::int64_t in_channels, std::int64_t out_channels, Size2d kernel,
         Conv2dOptions options = {}, Where where = Where::current());
  [[nodiscard]] Tensor forward(const Tensor& x) override;

  Tensor weight;
  Tensor bias;  ///< undefined without bias

 private:
  capstan::Conv2dOptions options_;
};

/// The same for x [batch, channels, length] and a weight [out_channels, in_channels / groups,
/// kernel].
class Conv1d : public Module {
 public:
  /// @throws as Conv2d.
  Conv1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel,
         Conv1dOptions options = {}, Where where = Where::current());
  [[nodiscard]] Tensor forward(const Tensor& x) override;

  Tensor weight;
  Tensor bias;  ///< undefined without bias

 private:
  capstan::Conv1dOptions options_;
};

}  // namespace capstan::nn

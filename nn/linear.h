#pragma once

#include "framework/random/generator.h"
#include "nn/module.h"

namespace capstan::nn {

struct LinearOptions {
  bool bias = true;
  Device device = Device::cpu();
  DType dtype = DType::float32;
  /// Draws the initial values; else the device's default generator.
  const Generator* generator = nullptr;
};

/// y = x W^T + b, x [..., in_features], W [out_features, in_features], b [out_features].
/// Initialised as PyTorch does: both uniform in +-1/sqrt(in_features).
class Linear : public Module {
 public:
  /// @throws ValueError unless both sizes are at least 1; DTypeError unless dtype is floating.
  Linear(std::int64_t in_features, std::int64_t out_features, LinearOptions options = {},
         Where where = Where::current());
  [[nodiscard]] Tensor forward(const Tensor& x) override;

  Tensor weight;
  Tensor bias;  ///< undefined without bias
};

}  // namespace capstan::nn

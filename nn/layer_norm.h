#pragma once

#include <optional>

#include "nn/module.h"

// Normalisations that keep no statistics: the same in training and evaluation. See autograd/norm.h.
namespace capstan::nn {

struct LayerNormOptions {
  double eps = 1e-5;
  bool affine = true;  ///< weight, at first one
  bool bias = true;    ///< with `affine`, at first zero
  Device device = Device::cpu();
  DType dtype = DType::float32;
};

/// `layer_norm` over the last axes of x, whose sizes are `sizes`.
class LayerNorm : public Module {
 public:
  /// @throws ValueError  unless sizes are at least 1 and eps > 0; DTypeError unless dtype is
  ///   floating.
  explicit LayerNorm(Shape sizes, LayerNormOptions options = {}, Where where = Where::current());
  [[nodiscard]] Tensor forward(const Tensor& x) override;

  Tensor weight;  ///< of shape `sizes`; undefined without `affine`
  Tensor bias;    ///< of shape `sizes`; undefined without

 private:
  Shape sizes_;
  double eps_;
};

struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true;  ///< weight and bias, at first one and zero
  Device device = Device::cpu();
  DType dtype = DType::float32;
};

/// `group_norm` of x [batch, channels, ...].
class GroupNorm : public Module {
 public:
  /// @throws ValueError  unless groups divides channels and eps > 0; DTypeError unless dtype is
  ///   floating.
  GroupNorm(std::int64_t groups, std::int64_t channels, GroupNormOptions options = {},
            Where where = Where::current());
  [[nodiscard]] Tensor forward(const Tensor& x) override;

  Tensor weight;  ///< [channels]; undefined without `affine`
  Tensor bias;    ///< likewise

 private:
  std::int64_t groups_;
  double eps_;
};

struct RMSNormOptions {
  std::optional<double> eps{};  ///< empty: as in `rms_norm`
  bool affine = true;           ///< weight, at first one
  Device device = Device::cpu();
  DType dtype = DType::float32;
};

/// `rms_norm` over the last axes of x, whose sizes are `sizes`.
class RMSNorm : public Module {
 public:
  /// @throws as LayerNorm.
  explicit RMSNorm(Shape sizes, RMSNormOptions options = {}, Where where = Where::current());
  [[nodiscard]] Tensor forward(const Tensor& x) override;

  Tensor weight;  ///< of shape `sizes`; undefined without `affine`

 private:
  Shape sizes_;
  std::optional<double> eps_;
};

}  // namespace capstan::nn

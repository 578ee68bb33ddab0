#pragma once

#include "nn/optim/optimizer.h"

namespace capstan::nn {

struct AdamOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool maximize = false;
};

/// Adam (Kingma and Ba 2015); weight decay is added to the gradient. See AdamArgs for the rule.
class Adam : public Optimizer {
 public:
  /// @throws ValueError  on a value out of its domain.
  explicit Adam(std::vector<Tensor> parameters, AdamOptions options = {},
                Where where = Where::current());
  /// @throws ValueError  as the constructor; CaptureError while capturing. So do the next two.
  void set_betas(double beta1, double beta2, Where where = Where::current());
  void set_eps(double value, Where where = Where::current());
  void set_weight_decay(double value, Where where = Where::current());

 protected:
  /// `decoupled` weight decay makes it AdamW.
  Adam(std::vector<Tensor> parameters, AdamOptions options, bool decoupled, const Where& where);

 private:
  void update(const std::vector<ops::ParameterSlot>& slots) override;

  const bool decoupled_;
  const bool maximize_;
};

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool maximize = false;
};

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
class AdamW final : public Adam {
 public:
  explicit AdamW(std::vector<Tensor> parameters, AdamWOptions options = {},
                 Where where = Where::current());
};

}  // namespace capstan::nn

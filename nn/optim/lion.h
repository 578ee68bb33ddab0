#pragma once

#include "nn/optim/optimizer.h"

namespace capstan::nn {

struct LionOptions {
  double learning_rate = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0.0;
  bool maximize = false;
};

/// Steps of one size, in the direction of the sign of the mixed momentum (Chen et al. 2023); weight
/// decay is decoupled. See LionArgs for the rule. Options: "lr", "beta1", "beta2", "weight_decay".
class Lion final : public Optimizer {
 public:
  /// @throws ValueError  on a value out of its domain.
  explicit Lion(std::vector<Tensor> parameters, LionOptions options = {},
                Where where = Where::current());
  /// See SGD::add_param_group.
  void add_param_group(const std::vector<Tensor>& parameters, LionOptions options,
                       Where where = Where::current());

 private:
  void update(std::size_t group, const std::vector<ops::ParameterSlot>& slots,
              const ops::StepControl& control) override;

  std::vector<char> maximize_;  // of each group
};

}  // namespace capstan::nn

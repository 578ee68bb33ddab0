#pragma once

#include "nn/optim/optimizer.h"

namespace capstan::nn {

struct AdagradOptions {
  double learning_rate = 1e-2;
  double lr_decay = 0.0;
  double weight_decay = 0.0;
  double initial_accumulator_value = 0.0;
  double eps = 1e-10;
  bool maximize = false;
};

/// Gradients divided by the root of the sum of all their squares (Duchi et al. 2011). See
/// AdagradArgs for the rule. Options: "lr", "lr_decay", "weight_decay", "eps".
class Adagrad final : public Optimizer {
 public:
  /// @throws ValueError  on a negative value.
  explicit Adagrad(std::vector<Tensor> parameters, AdagradOptions options = {},
                   Where where = Where::current());
  /// See SGD::add_param_group.
  void add_param_group(const std::vector<Tensor>& parameters, AdagradOptions options,
                       Where where = Where::current());

 private:
  void update(std::size_t group, const std::vector<ops::ParameterSlot>& slots,
              const ops::StepControl& control) override;

  std::vector<char> maximize_;  // of each group
};

}  // namespace capstan::nn

#pragma once

#include "nn/optim/optimizer.h"

namespace capstan::nn {

struct RMSpropOptions {
  double learning_rate = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double momentum = 0.0;
  bool centered = false;
  bool maximize = false;
};

/// Gradients divided by the root of their mean square (Hinton 2012), or, `centered`, of their
/// variance (Graves 2013). See RmspropArgs for the rule. Options: "lr", "alpha", "eps",
/// "weight_decay", "momentum".
class RMSprop final : public Optimizer {
 public:
  /// @throws ValueError  on a negative value, or alpha of 1 or more.
  explicit RMSprop(std::vector<Tensor> parameters, RMSpropOptions options = {},
                   Where where = Where::current());
  /// See SGD::add_param_group.
  void add_param_group(const std::vector<Tensor>& parameters, RMSpropOptions options,
                       Where where = Where::current());

 private:
  struct Flags {
    bool momentum, maximize;
  };

  void update(std::size_t group, const std::vector<ops::ParameterSlot>& slots,
              const ops::StepControl& control) override;
  void check_change(std::size_t group, std::string_view option, double value) const override;

  std::vector<Flags> flags_;  // of each group
};

}  // namespace capstan::nn

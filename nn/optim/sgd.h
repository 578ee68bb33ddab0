#pragma once

#include "nn/optim/optimizer.h"

namespace capstan::nn {

struct SGDOptions {
  double learning_rate = 1e-3;
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
  bool maximize = false;
};

/// Stochastic gradient descent: d = g + weight_decay p; v = momentum v + (1 - dampening) d (in the
/// first step v = d); p -= lr (nesterov ? d + momentum v : v) (Sutskever et al. 2013). Options:
/// "lr", "momentum", "weight_decay", "dampening".
class SGD final : public Optimizer {
 public:
  /// @throws ValueError  on a negative value (dampening may have any), or nesterov without momentum
  ///   or with dampening.
  explicit SGD(std::vector<Tensor> parameters, SGDOptions options = {},
               Where where = Where::current());
  /// @throws as the constructor; CaptureError while a step is recorded or tried. Graphs recorded
  ///   before do not update the new group.
  void add_param_group(const std::vector<Tensor>& parameters, SGDOptions options,
                       Where where = Where::current());
  /// Of all groups. @throws StateError if one was made with momentum 0, since there is no state for
  ///   it then; ValueError as the constructor; CaptureError while capturing.
  void set_momentum(double value, Where where = Where::current());
  void set_weight_decay(double value, Where where = Where::current());

 private:
  struct Flags {
    bool momentum, nesterov, maximize;
  };

  void update(std::size_t group, const std::vector<ops::ParameterSlot>& slots,
              const ops::StepControl& control) override;
  void check_change(std::size_t group, std::string_view option, double value) const override;

  std::vector<Flags> flags_;  // of each group
};

}  // namespace capstan::nn

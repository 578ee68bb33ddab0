#pragma once

#include "nn/optim/optimizer.h"

namespace capstan::nn {

struct SGDOptions {
  double learning_rate = 1e-3;
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
  bool maximize = false;
};

/// Stochastic gradient descent: d = g + weight_decay p; v = momentum v + d;
/// p -= lr (nesterov ? d + momentum v : v) (Sutskever et al. 2013). v starts at 0.
class SGD final : public Optimizer {
 public:
  /// @throws ValueError  on a negative value, or nesterov without momentum.
  explicit SGD(std::vector<Tensor> parameters, SGDOptions options = {},
               Where where = Where::current());
  /// @throws StateError if made with momentum 0, since there is no state for it then; ValueError as
  ///   the constructor; CaptureError while capturing.
  void set_momentum(double value, Where where = Where::current());
  void set_weight_decay(double value, Where where = Where::current());

 private:
  void update(const std::vector<ops::ParameterSlot>& slots) override;

  const bool has_momentum_;
  const bool nesterov_;
  const bool maximize_;
};

}  // namespace capstan::nn

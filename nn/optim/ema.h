#pragma once

#include <vector>

#include "nn/state_dict.h"

namespace capstan::nn {

/// Exponential moving averages of parameters, on their device. They start as the parameters are
/// when it is made, in float32 for halves. Work is only enqueued; captures may contain `update` and
/// the copies, and replays follow the parameters and the decay.
class EMA final {
 public:
  /// @throws ValueError  if there are no parameters, or `decay` is not in [0, 1]; DTypeError unless
  ///   all are floating.
  explicit EMA(std::vector<Tensor> parameters, double decay = 0.999,
               Where where = Where::current());
  EMA(const EMA&) = delete;
  EMA& operator=(const EMA&) = delete;

  /// average += (1 - decay) (parameter - average). Call it after the optimiser's step.
  void update(Where where = Where::current());
  /// Overwrites the parameters with the averages, in place. To come back, save them first.
  void copy_to_parameters(Where where = Where::current()) const;

  [[nodiscard]] double decay() const noexcept { return decay_; }
  /// Takes effect from the next update on, eager or replayed. @throws ValueError; CaptureError
  /// while
  ///   capturing.
  void set_decay(double value, Where where = Where::current());
  /// In the order of the parameters.
  [[nodiscard]] const std::vector<Tensor>& averages() const noexcept { return averages_; }

  /// "decay" (of float64, a copy on the CPU) and "0", "1", ...: the averages, which share memory.
  [[nodiscard]] StateDict state_dict() const;
  /// Copies in place. @throws as nn::copy_state.
  void load_state_dict(const StateDict& state, Where where = Where::current());

 private:
  [[nodiscard]] const Tensor& weight_for(const Tensor& average) const;
  void write_decay(double value);

  const std::vector<Tensor> parameters_;
  std::vector<Tensor> averages_;
  std::vector<Tensor> weights_;  // 1 - decay, once for each dtype and device of the averages
  double decay_;
};

}  // namespace capstan::nn

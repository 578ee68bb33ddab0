#pragma once

#include <string>
#include <vector>

#include "framework/runtime/forbidden.h"
#include "nn/module.h"
#include "ops/optimizer_step.h"

namespace capstan::nn {

/// Base of optimisers. Every hyperparameter, the step count and all state live on the parameters'
/// device, so a step is recordable by construction and a replay sees every change: nothing is
/// frozen. State is made in the constructor; `step` allocates nothing. One step count serves all
/// parameters.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates every parameter that has a gradient, in one kernel per 64 parameters. Not recorded for
  /// backward. @throws DTypeError, ShapeError, DeviceError naming the parameter's position;
  /// CaptureError in a capture (other than CapturedStep's, which records anew when gradients come
  /// and go) if a parameter has no gradient, since no replay would ever update it.
  void step(Where where = Where::current());
  /// Undefines gradients, or fills them with zeros.
  void zero_grad(bool set_to_none = true) { zero_gradients(parameters_, set_to_none); }

  [[nodiscard]] double learning_rate() const noexcept { return hyper_values_[0]; }
  /// Takes effect from the next step on, eager or replayed. Only enqueued, like the step itself.
  /// @throws ValueError if negative; CaptureError while capturing.
  void set_learning_rate(double value, Where where = Where::current());
  /// Finished steps. Waits for the device. @throws CaptureError while capturing.
  [[nodiscard]] std::int64_t step_count(Where where = Where::current()) const;
  /// The int64 scalar on the device that counts finished steps.
  [[nodiscard]] const Tensor& step_tensor() const noexcept { return step_; }
  /// float64 hyperparameters on the device, the learning rate first.
  [[nodiscard]] const Tensor& hyperparameters() const noexcept { return hyper_; }
  [[nodiscard]] const std::vector<Tensor>& parameters() const noexcept { return parameters_; }

  /// "step", "hyper", and per parameter its state, e.g. "0.momentum"; they share memory.
  [[nodiscard]] StateDict state_dict() const;
  /// Copies in place; everything is checked first. Waits for the device. @throws ValueError,
  /// ShapeError, DTypeError; CaptureError while capturing.
  void load_state_dict(const StateDict& state, Where where = Where::current());

 protected:
  struct Kind {
    const char* name;              ///< "sgd"
    const char* state1 = nullptr;  ///< names of the state of each parameter, null: there is none
    const char* state2 = nullptr;
  };
  /// @throws ValueError if there are no parameters, one is listed twice, or one is not a leaf that
  ///   requires a gradient; DTypeError, DeviceError unless all agree.
  Optimizer(std::vector<Tensor> parameters, std::vector<double> hyper, Kind kind,
            const Where& where);

  /// Changes one hyperparameter on the device, unless it captures.
  void set_hyper(std::size_t index, double value, Forbidden call);
  /// Throws ValueError unless `valid`.
  void check_value(bool valid, const char* what, double value, const char* domain) const;
  [[nodiscard]] const Tensor& hyper() const noexcept { return hyper_; }

 private:
  /// Submits one step; the slots fit the parameters.
  virtual void update(const std::vector<ops::ParameterSlot>& slots) = 0;
  void collect_slots();

  const Kind kind_;
  const std::vector<Tensor> parameters_;
  std::vector<Tensor> state1_;
  std::vector<Tensor> state2_;
  std::vector<double> hyper_values_;  // what `hyper_` holds, for reading without waiting
  Tensor hyper_;
  Tensor step_;
  std::vector<ops::ParameterSlot> slots_;  // filled during a step only
};

}  // namespace capstan::nn

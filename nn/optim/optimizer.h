#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/runtime/forbidden.h"
#include "nn/module.h"
#include "ops/optimizer_step.h"

namespace capstan::nn {

/// Base of optimisers. Every hyperparameter, the step count and all state live on the parameters'
/// device, so a step is recordable by construction and a replay sees every change: nothing is
/// frozen. State is made in the constructor; `step` allocates nothing. One step count serves all
/// parameters.
///
/// Parameters come in groups, each with options of its own: the constructor makes group 0 and
/// `add_param_group` of each optimiser the others.
class Optimizer {
 public:
  enum class Domain : std::uint8_t { at_least_0, below_1, any };
  /// One option: its name, how messages call it, and the values that it takes.
  struct Option {
    const char* name;
    const char* words;
    Domain domain = Domain::at_least_0;  ///< below_1: and at least 0
  };

  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates every parameter that has a gradient, in one kernel per 64 parameters of a group. Not
  /// recorded for backward. @throws DTypeError, ShapeError, DeviceError naming the parameter's
  /// position; CaptureError in a capture (other than CapturedStep's, which records anew when
  /// gradients come and go) if a parameter has no gradient, since no replay would ever update it.
  void step(Where where = Where::current());
  /// The same, unless the float32 scalar `skip` on the parameters' device is not 0 when the device
  /// gets there: then nothing changes, nor is a step counted.
  void step_unless(const Tensor& skip, Where where = Where::current());
  /// Undefines gradients, or fills them with zeros.
  void zero_grad(bool set_to_none = true) { zero_gradients(parameters_, set_to_none); }

  [[nodiscard]] std::size_t group_count() const noexcept { return groups_.size(); }
  /// An option of a group by its PyTorch name ("lr", "weight_decay", "momentum", ...), from the
  /// host's copy. @throws ValueError if there is no such option, IndexError if no such group.
  [[nodiscard]] double option(std::string_view name, std::size_t group = 0,
                              Where where = Where::current()) const;
  /// Takes effect from the next step on, eager or replayed. Only enqueued, like the step itself.
  /// @throws as `option`; ValueError out of the option's domain; StateError for a momentum that the
  ///   group keeps no state for; CaptureError while capturing.
  void set_option(std::string_view name, double value, std::size_t group,
                  Where where = Where::current());

  [[nodiscard]] double learning_rate(std::size_t group = 0) const;
  /// Sets it for all groups, or for one. See `set_option`.
  void set_learning_rate(double value, Where where = Where::current());
  void set_learning_rate(std::size_t group, double value, Where where = Where::current());
  /// Finished steps. Waits for the device. @throws CaptureError while capturing.
  [[nodiscard]] std::int64_t step_count(Where where = Where::current()) const;
  /// The int64 scalar on the device that counts finished steps.
  [[nodiscard]] const Tensor& step_tensor() const noexcept { return step_; }
  /// float32 scalar on the device, where a GradScaler notes that gradients are inf or NaN.
  [[nodiscard]] const Tensor& found_inf() const noexcept { return found_inf_; }
  /// float64 options of a group on the device, the learning rate first.
  [[nodiscard]] const Tensor& hyperparameters(std::size_t group = 0) const;
  /// Of all groups, one after the other.
  [[nodiscard]] const std::vector<Tensor>& parameters() const noexcept { return parameters_; }

  /// "step", "hyper" ("hyper.1" for group 1 and so on), and per parameter its state, e.g.
  /// "0.momentum"; they share memory.
  [[nodiscard]] StateDict state_dict() const;
  /// Copies in place; everything is checked first. Waits for the device. @throws ValueError,
  /// ShapeError, DTypeError; CaptureError while capturing.
  void load_state_dict(const StateDict& state, Where where = Where::current());

 protected:
  struct State {
    const char* name = nullptr;  ///< null: there is none
    double initial = 0.0;
  };
  struct States {
    State state1{};
    State state2{};
    State state3{};
  };

  /// `name` is that of messages; `options` lives for ever and has the learning rate first.
  Optimizer(const char* name, std::span<const Option> options) : name_(name), options_(options) {}
  /// Adds a group with the values of the options in their order.
  /// @throws ValueError if there are no parameters, one is listed twice, or one is not a leaf that
  ///   requires a gradient, or on a value out of its domain; DTypeError, DeviceError unless all
  ///   agree; CaptureError while a step is recorded or tried. Nothing has changed then.
  void add_group(const std::vector<Tensor>& parameters, std::vector<double> values, States states,
                 const Where& where);
  /// Changes one option in all groups.
  void set_everywhere(std::string_view name, double value, Forbidden call);
  /// Refuses a change that does not fit the group: values are in the option's domain already.
  virtual void check_change(std::size_t /*group*/, std::string_view /*name*/,
                            double /*value*/) const {}
  void check_value(bool valid, const char* what, double value, const char* domain) const;
  [[nodiscard]] const char* name() const noexcept { return name_; }

 private:
  struct Group {
    std::size_t end;             // of its parameters
    std::vector<double> values;  // what `hyper` holds, for reading without waiting
    Tensor hyper;
    std::vector<ops::ParameterSlot> slots;  // filled during a step only
  };
  struct Kept {
    const char* name;
    Tensor tensor;
  };
  struct KeptStates {
    Kept state1, state2, state3;
  };

  /// Submits one step of a group; the slots fit its parameters.
  virtual void update(std::size_t group, const std::vector<ops::ParameterSlot>& slots,
                      const ops::StepControl& control) = 0;
  void collect_slots();
  void check_parameters(const std::vector<Tensor>& added) const;
  void check_option(std::size_t option, double value) const;
  [[nodiscard]] std::size_t index_of(std::string_view name) const;
  [[nodiscard]] const Group& checked_group(std::size_t group) const;
  void write_option(std::size_t group, std::size_t option, double value);

  const char* const name_;
  const std::span<const Option> options_;
  std::vector<Tensor> parameters_;
  std::vector<KeptStates> states_;
  std::vector<Group> groups_;
  Tensor step_;
  Tensor found_inf_;
};

}  // namespace capstan::nn

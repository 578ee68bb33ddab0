#include "nn/optim/optimizer.h"

#include <cmath>
#include <unordered_set>

#include "autograd/grad_mode.h"
#include "autograd/leaf_watch.h"
#include "framework/runtime/capture_session.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/write_journal.h"
#include "ops/creation.h"
#include "ops/elementwise.h"

namespace capstan::nn {
namespace {

void check_gradient(const char* name, std::size_t position, const Tensor& parameter,
                    const Tensor& grad, Device device) {
  CAPSTAN_CHECK(parameter.device() == device, DeviceError, name, ": parameter ", position,
                " moved to ", parameter.device(), " but the optimiser's state is on ", device,
                "; make the optimiser after moving the model");
  CAPSTAN_CHECK(grad.shape() == parameter.shape(), ShapeError, name, ": parameter ", position,
                " has shape ", parameter.shape(), " but its gradient ", grad.shape());
  CAPSTAN_CHECK(grad.dtype() == parameter.dtype(), DTypeError, name, ": parameter ", position,
                " is ", parameter.dtype(), " but its gradient ", grad.dtype());
  CAPSTAN_CHECK(grad.device() == device, DeviceError, name, ": parameter ", position, " is on ",
                device, " but its gradient on ", grad.device());
}

}  // namespace

void Optimizer::check_parameters(const std::vector<Tensor>& added) const {
  CAPSTAN_CHECK(!added.empty(), ValueError, name_,
                ": there are no parameters to optimise; pass model.parameters()");
  std::unordered_set<const TensorImpl*> seen;
  for (const Tensor& parameter : parameters_) seen.insert(parameter.impl().get());
  const Tensor& first = parameters_.empty() ? added[0] : parameters_[0];
  for (std::size_t i = 0; i < added.size(); ++i) {
    const Tensor& parameter = added[i];
    const std::size_t position = parameters_.size() + i;
    CAPSTAN_CHECK(parameter.defined(), ValueError, name_, ": parameter ", position,
                  " is undefined");
    CAPSTAN_CHECK(parameter.is_leaf() && parameter.requires_grad(), ValueError, name_,
                  ": parameter ", position, " (", describe(parameter),
                  ") is not a leaf that requires a gradient; call set_requires_grad() on it");
    CAPSTAN_CHECK(seen.insert(parameter.impl().get()).second, ValueError, name_, ": parameter ",
                  position, " (", describe(parameter), ") is listed twice");
    CAPSTAN_CHECK(parameter.is_contiguous(), ValueError, name_, ": parameter ", position, " (",
                  describe(parameter), ") is not contiguous");
    CAPSTAN_CHECK(parameter.dtype() == first.dtype(), DTypeError, name_, ": parameter ", position,
                  " is ", parameter.dtype(), " but parameter 0 is ", first.dtype(),
                  "; give each dtype an optimiser of its own");
    CAPSTAN_CHECK(parameter.device() == first.device(), DeviceError, name_, ": parameter ",
                  position, " is on ", parameter.device(), " but parameter 0 is on ",
                  first.device(), "; move the model first");
  }
}

void Optimizer::add_group(const std::vector<Tensor>& parameters, std::vector<double> values,
                          States states, const Where& where) {
  const CallSite site(where);
  check_parameters(parameters);
  for (std::size_t i = 0; i < options_.size(); ++i) check_option(i, values[i]);
  const Device device = parameters[0].device();
  if (!groups_.empty()) refuse_while_capturing(device, Forbidden::add_param_group);
  CAPSTAN_CHECK(groups_.empty() || WriteJournal::current() == nullptr, CaptureError, name_,
                ": a group of parameters cannot be added by the step that is tried or recorded, "
                "since every replay would leave it out; add it beforehand");
  const NoGradGuard no_grad;
  Group group{.end = parameters_.size() + parameters.size(),
              .values = std::move(values),
              .hyper = Tensor(),
              .slots = {}};
  group.hyper =
      Tensor::from_vector({static_cast<std::int64_t>(group.values.size())}, group.values, device);
  group.slots.reserve(parameters.size());
  const Tensor step =
      step_.defined() ? step_ : zeros({}, {.dtype = DType::int64, .device = device});
  const Tensor found_inf = found_inf_.defined() ? found_inf_ : zeros({}, {.device = device});
  std::vector<KeptStates> kept;
  for (const Tensor& parameter : parameters) {
    const auto make = [&parameter](const State& state) -> Kept {
      if (state.name == nullptr) return {};
      return {state.name, full(parameter.shape(), state.initial,
                               {.dtype = parameter.dtype(), .device = parameter.device()})};
    };
    kept.push_back({make(states.state1), make(states.state2), make(states.state3)});
  }
  parameters_.reserve(group.end);
  states_.reserve(group.end);
  groups_.push_back(std::move(group));
  parameters_.insert(parameters_.end(), parameters.begin(), parameters.end());
  states_.insert(states_.end(), kept.begin(), kept.end());
  step_ = step;
  found_inf_ = found_inf;
}

void Optimizer::step(Where where) { step_unless(Tensor(), where); }

void Optimizer::step_unless(const Tensor& skip, Where where) {
  const CallSite site(where);
  const NoGradGuard no_grad;
  // Slots hold gradients; kept, they would keep the memory of the last step beside the next one's.
  struct Release {
    std::vector<Group>& groups;
    ~Release() {
      for (Group& group : groups) group.slots.clear();
    }
  } const release{groups_};
  collect_slots();
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    update(i, groups_[i].slots, {.counts = i + 1 == groups_.size(), .skip = skip});
  }
}

void Optimizer::collect_slots() {
  const Device device = step_.device();
  // A plain graph never learns of a gradient that appears later. A CapturedStep, which watches
  // leaves while it captures, records anew then.
  const bool is_frozen = is_current_stream_capturing(device) && !autograd::LeafWatch::is_active();
  std::size_t i = 0;
  for (Group& group : groups_) {
    for (; i < group.end; ++i) {
      const Tensor& parameter = parameters_[i];
      const Tensor grad = parameter.grad();
      if (!grad.defined()) {
        CAPSTAN_CHECK(!is_frozen || !parameter.requires_grad(), CaptureError, name_, ": parameter ",
                      i, " (", describe(parameter),
                      ") has no gradient while capturing, so no replay would ever update it; leave "
                      "it out of the optimiser, or call set_requires_grad(false) on it");
        continue;
      }
      check_gradient(name_, i, parameter, grad, device);
      group.slots.push_back({.parameter = parameter,
                             .grad = ops::contiguous(grad),
                             .state1 = states_[i].state1.tensor,
                             .state2 = states_[i].state2.tensor,
                             .state3 = states_[i].state3.tensor});
    }
  }
}

std::size_t Optimizer::index_of(std::string_view name) const {
  std::string names;
  for (std::size_t i = 0; i < options_.size(); ++i) {
    if (name == options_[i].name) return i;
    names += (i == 0 ? "" : ", ") + std::string(options_[i].name);
  }
  throw ValueError(detail::concat(name_, ": there is no option \"", name, "\"; there are ", names));
}

const Optimizer::Group& Optimizer::checked_group(std::size_t group) const {
  CAPSTAN_CHECK(group < groups_.size(), IndexError, name_, ": there is no group ", group,
                " of parameters; there are ", groups_.size());
  return groups_[group];
}

double Optimizer::option(std::string_view name, std::size_t group, Where where) const {
  const CallSite site(where);
  return checked_group(group).values[index_of(name)];
}

double Optimizer::learning_rate(std::size_t group) const { return checked_group(group).values[0]; }

const Tensor& Optimizer::hyperparameters(std::size_t group) const {
  return checked_group(group).hyper;
}

void Optimizer::set_option(std::string_view name, double value, std::size_t group, Where where) {
  const CallSite site(where);
  const std::size_t index = index_of(name);
  (void)checked_group(group);
  check_option(index, value);
  check_change(group, name, value);
  refuse_while_capturing(step_.device(), Forbidden::set_option);
  write_option(group, index, value);
}

void Optimizer::set_learning_rate(double value, Where where) {
  const CallSite site(where);
  set_everywhere(options_[0].name, value, Forbidden::set_learning_rate);
}

void Optimizer::set_learning_rate(std::size_t group, double value, Where where) {
  const CallSite site(where);
  (void)checked_group(group);
  check_option(0, value);
  refuse_while_capturing(step_.device(), Forbidden::set_learning_rate);
  write_option(group, 0, value);
}

void Optimizer::set_everywhere(std::string_view name, double value, Forbidden call) {
  const std::size_t index = index_of(name);
  check_option(index, value);
  for (std::size_t i = 0; i < groups_.size(); ++i) check_change(i, name, value);
  refuse_while_capturing(step_.device(), call);
  for (std::size_t i = 0; i < groups_.size(); ++i) write_option(i, index, value);
}

void Optimizer::write_option(std::size_t group, std::size_t option, double value) {
  std::vector<double>& values = groups_[group].values;
  if (WriteJournal* journal = WriteJournal::current()) {
    journal->keep_host(&values, [&values, before = values] { values = before; });
  }
  const NoGradGuard no_grad;
  groups_[group].hyper.select(0, static_cast<std::int64_t>(option)).fill_(value);
  values[option] = value;
}

std::int64_t Optimizer::step_count(Where where) const {
  const CallSite site(where);
  refuse_while_capturing(step_.device(), Forbidden::step_count);
  return step_.item<std::int64_t>(where);
}

void Optimizer::check_option(std::size_t option, double value) const {
  const Option& rule = options_[option];
  switch (rule.domain) {
    case Domain::at_least_0: return check_value(value >= 0.0, rule.words, value, "at least 0");
    case Domain::below_1:
      return check_value(value >= 0.0 && value < 1.0, rule.words, value, "in [0, 1)");
    case Domain::any: return check_value(true, rule.words, value, "finite");
  }
}

void Optimizer::check_value(bool valid, const char* what, double value, const char* domain) const {
  CAPSTAN_CHECK(valid && std::isfinite(value), ValueError, name_, ": ", what, " must be ", domain,
                ", got ", value);
}

StateDict Optimizer::state_dict() const {
  StateDict state{{"step", step_}};
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    state.emplace_back(i == 0 ? "hyper" : "hyper." + std::to_string(i), groups_[i].hyper);
  }
  for (std::size_t i = 0; i < states_.size(); ++i) {
    for (const Kept* kept : {&states_[i].state1, &states_[i].state2, &states_[i].state3}) {
      if (kept->name == nullptr) continue;
      state.emplace_back(std::to_string(i) + "." + kept->name, kept->tensor);
    }
  }
  return state;
}

void Optimizer::load_state_dict(const StateDict& state, Where where) {
  const CallSite site(where);
  copy_state("load_state_dict", state_dict(), state, /*strict=*/true);
  for (Group& group : groups_) group.values = group.hyper.to_vector<double>();
}

}  // namespace capstan::nn

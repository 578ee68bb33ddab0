#include "nn/optim/optimizer.h"

#include <cmath>
#include <unordered_set>

#include "autograd/grad_mode.h"
#include "autograd/leaf_watch.h"
#include "framework/runtime/capture_session.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/write_journal.h"
#include "ops/elementwise.h"

namespace capstan::nn {
namespace {

void check_parameters(const char* name, const std::vector<Tensor>& parameters) {
  CAPSTAN_CHECK(!parameters.empty(), ValueError, name,
                ": there are no parameters to optimise; pass model.parameters()");
  std::unordered_set<const TensorImpl*> seen;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& parameter = parameters[i];
    CAPSTAN_CHECK(parameter.defined(), ValueError, name, ": parameter ", i, " is undefined");
    CAPSTAN_CHECK(parameter.is_leaf() && parameter.requires_grad(), ValueError, name,
                  ": parameter ", i, " (", describe(parameter),
                  ") is not a leaf that requires a gradient; call set_requires_grad() on it");
    CAPSTAN_CHECK(seen.insert(parameter.impl().get()).second, ValueError, name, ": parameter ", i,
                  " (", describe(parameter), ") is listed twice");
    CAPSTAN_CHECK(parameter.is_contiguous(), ValueError, name, ": parameter ", i, " (",
                  describe(parameter), ") is not contiguous");
    CAPSTAN_CHECK(parameter.dtype() == parameters[0].dtype(), DTypeError, name, ": parameter ", i,
                  " is ", parameter.dtype(), " but parameter 0 is ", parameters[0].dtype(),
                  "; give each dtype an optimiser of its own");
    CAPSTAN_CHECK(parameter.device() == parameters[0].device(), DeviceError, name, ": parameter ",
                  i, " is on ", parameter.device(), " but parameter 0 is on ",
                  parameters[0].device(), "; move the model first");
  }
}

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

Optimizer::Optimizer(std::vector<Tensor> parameters, std::vector<double> hyper, Kind kind,
                     const Where& where)
    : kind_(kind), parameters_(std::move(parameters)), hyper_values_(std::move(hyper)) {
  const CallSite site(where);
  check_parameters(kind.name, parameters_);
  const NoGradGuard no_grad;
  const Device device = parameters_[0].device();
  hyper_ =
      Tensor::from_vector({static_cast<std::int64_t>(hyper_values_.size())}, hyper_values_, device);
  step_ = zeros({}, {.dtype = DType::int64, .device = device});
  for (const Tensor& parameter : parameters_) {
    if (kind.state1 != nullptr) state1_.push_back(zeros_like(parameter));
    if (kind.state2 != nullptr) state2_.push_back(zeros_like(parameter));
  }
  slots_.reserve(parameters_.size());
}

void Optimizer::step(Where where) {
  const CallSite site(where);
  const NoGradGuard no_grad;
  // Slots hold gradients; kept, they would keep the memory of the last step beside the next one's.
  struct Release {
    std::vector<ops::ParameterSlot>& slots;
    ~Release() { slots.clear(); }
  } const release{slots_};
  collect_slots();
  update(slots_);
}

void Optimizer::collect_slots() {
  const Device device = step_.device();
  // A plain graph never learns of a gradient that appears later. A CapturedStep, which watches
  // leaves while it captures, records anew then.
  const bool is_frozen = is_current_stream_capturing(device) && !autograd::LeafWatch::is_active();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i];
    const Tensor grad = parameter.grad();
    if (!grad.defined()) {
      CAPSTAN_CHECK(!is_frozen || !parameter.requires_grad(), CaptureError, kind_.name,
                    ": parameter ", i, " (", describe(parameter),
                    ") has no gradient while capturing, so no replay would ever update it; leave "
                    "it out of the optimiser, or call set_requires_grad(false) on it");
      continue;
    }
    check_gradient(kind_.name, i, parameter, grad, device);
    slots_.push_back({.parameter = parameter,
                      .grad = ops::contiguous(grad),
                      .state1 = state1_.empty() ? Tensor() : state1_[i],
                      .state2 = state2_.empty() ? Tensor() : state2_[i]});
  }
}

void Optimizer::set_learning_rate(double value, Where where) {
  const CallSite site(where);
  check_value(value >= 0.0, "learning rate", value, "at least 0");
  set_hyper(0, value, Forbidden::set_learning_rate);
}

std::int64_t Optimizer::step_count(Where where) const {
  const CallSite site(where);
  refuse_while_capturing(step_.device(), Forbidden::step_count);
  return step_.item<std::int64_t>(where);
}

void Optimizer::set_hyper(std::size_t index, double value, Forbidden call) {
  refuse_while_capturing(hyper_.device(), call);
  if (WriteJournal* journal = WriteJournal::current()) {
    journal->keep_host(&hyper_values_, [this, values = hyper_values_] { hyper_values_ = values; });
  }
  const NoGradGuard no_grad;
  hyper_.select(0, static_cast<std::int64_t>(index)).fill_(value);
  hyper_values_[index] = value;
}

void Optimizer::check_value(bool valid, const char* what, double value, const char* domain) const {
  CAPSTAN_CHECK(valid && std::isfinite(value), ValueError, kind_.name, ": ", what, " must be ",
                domain, ", got ", value);
}

StateDict Optimizer::state_dict() const {
  StateDict state{{"step", step_}, {"hyper", hyper_}};
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::string prefix = std::to_string(i) + ".";
    if (!state1_.empty()) state.emplace_back(prefix + kind_.state1, state1_[i]);
    if (!state2_.empty()) state.emplace_back(prefix + kind_.state2, state2_[i]);
  }
  return state;
}

void Optimizer::load_state_dict(const StateDict& state, Where where) {
  const CallSite site(where);
  copy_state("load_state_dict", state_dict(), state, /*strict=*/true);
  hyper_values_ = hyper_.to_vector<double>();
}

}  // namespace capstan::nn

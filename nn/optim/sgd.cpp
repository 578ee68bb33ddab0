#include "nn/optim/sgd.h"

namespace capstan::nn {
namespace {

// In the order of the device's array, as ops::sgd_step reads it.
constexpr Optimizer::Option kOptions[] = {{"lr", "learning rate"},
                                          {"momentum", "momentum"},
                                          {"weight_decay", "weight decay"},
                                          {"dampening", "dampening", Optimizer::Domain::any}};

}  // namespace

SGD::SGD(std::vector<Tensor> parameters, SGDOptions options, Where where)
    : Optimizer("sgd", kOptions) {
  add_param_group(parameters, options, where);
}

void SGD::add_param_group(const std::vector<Tensor>& parameters, SGDOptions options, Where where) {
  const CallSite site(where);
  const bool has_momentum = options.momentum != 0.0;
  check_value(!options.nesterov || has_momentum, "momentum", options.momentum,
              "positive for nesterov");
  check_value(!options.nesterov || options.dampening == 0.0, "dampening", options.dampening,
              "0 for nesterov");
  flags_.reserve(flags_.size() + 1);
  add_group(parameters,
            {options.learning_rate, options.momentum, options.weight_decay, options.dampening},
            {.state1 = {has_momentum ? "momentum" : nullptr}}, where);
  flags_.push_back({has_momentum, options.nesterov, options.maximize});
}

void SGD::update(std::size_t group, const std::vector<ops::ParameterSlot>& slots,
                 const ops::StepControl& control) {
  ops::sgd_step(slots, hyperparameters(group), step_tensor(), flags_[group].nesterov,
                flags_[group].maximize, control);
}

void SGD::check_change(std::size_t group, std::string_view option, double value) const {
  const Flags& flags = flags_[group];
  if (option == "momentum") {
    CAPSTAN_CHECK(flags.momentum, StateError,
                  "sgd: there is no momentum to set, since it was made with momentum 0; make it "
                  "with a positive momentum");
    check_value(!flags.nesterov || value > 0.0, "momentum", value, "positive for nesterov");
  }
  if (option == "dampening") {
    check_value(!flags.nesterov || value == 0.0, "dampening", value, "0 for nesterov");
  }
}

void SGD::set_momentum(double value, Where where) {
  const CallSite site(where);
  set_everywhere("momentum", value, Forbidden::set_momentum);
}

void SGD::set_weight_decay(double value, Where where) {
  const CallSite site(where);
  set_everywhere("weight_decay", value, Forbidden::set_weight_decay);
}

}  // namespace capstan::nn

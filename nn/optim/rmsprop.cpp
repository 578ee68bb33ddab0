#include "nn/optim/rmsprop.h"

namespace capstan::nn {
namespace {

// In the order of the device's array, as ops::rmsprop_step reads it.
constexpr Optimizer::Option kOptions[] = {{"lr", "learning rate"},
                                          {"alpha", "alpha", Optimizer::Domain::below_1},
                                          {"eps", "eps"},
                                          {"weight_decay", "weight decay"},
                                          {"momentum", "momentum"}};

}  // namespace

RMSprop::RMSprop(std::vector<Tensor> parameters, RMSpropOptions options, Where where)
    : Optimizer("rmsprop", kOptions) {
  add_param_group(parameters, options, where);
}

void RMSprop::add_param_group(const std::vector<Tensor>& parameters, RMSpropOptions options,
                              Where where) {
  const bool has_momentum = options.momentum != 0.0;
  flags_.reserve(flags_.size() + 1);
  add_group(
      parameters,
      {options.learning_rate, options.alpha, options.eps, options.weight_decay, options.momentum},
      {.state1 = {"square_average"},
       .state2 = {options.centered ? "average" : nullptr},
       .state3 = {has_momentum ? "momentum" : nullptr}},
      where);
  flags_.push_back({has_momentum, options.maximize});
}

void RMSprop::update(std::size_t group, const std::vector<ops::ParameterSlot>& slots,
                     const ops::StepControl& control) {
  ops::rmsprop_step(slots, hyperparameters(group), step_tensor(), flags_[group].maximize, control);
}

void RMSprop::check_change(std::size_t group, std::string_view option, double /*value*/) const {
  CAPSTAN_CHECK(option != "momentum" || flags_[group].momentum, StateError,
                "rmsprop: there is no momentum to set, since group ", group,
                " was made with momentum 0; make it with a positive momentum");
}

}  // namespace capstan::nn

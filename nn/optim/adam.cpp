#include "nn/optim/adam.h"

namespace capstan::nn {
namespace {

using Domain = Optimizer::Domain;

// In the order of the device's array, as ops::adam_step reads it.
constexpr Optimizer::Option kOptions[] = {{"lr", "learning rate"},
                                          {"beta1", "beta1", Domain::below_1},
                                          {"beta2", "beta2", Domain::below_1},
                                          {"eps", "eps"},
                                          {"weight_decay", "weight decay"}};

AdamOptions as_adam(const AdamWOptions& options) {
  return {.learning_rate = options.learning_rate,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = options.weight_decay,
          .amsgrad = options.amsgrad,
          .maximize = options.maximize};
}

}  // namespace

Adam::Adam(const std::vector<Tensor>& parameters, AdamOptions options, bool decoupled,
           const Where& where)
    : Optimizer(decoupled ? "adamw" : "adam", kOptions), decoupled_(decoupled) {
  add_param_group(parameters, options, where);
}

Adam::Adam(std::vector<Tensor> parameters, AdamOptions options, Where where)
    : Adam(parameters, options, /*decoupled=*/false, where) {}

AdamW::AdamW(std::vector<Tensor> parameters, AdamWOptions options, Where where)
    : Adam(parameters, as_adam(options), /*decoupled=*/true, where) {}

void Adam::add_param_group(const std::vector<Tensor>& parameters, AdamOptions options,
                           Where where) {
  flags_.reserve(flags_.size() + 1);
  add_group(
      parameters,
      {options.learning_rate, options.beta1, options.beta2, options.eps, options.weight_decay},
      {.state1 = {"first_moment"},
       .state2 = {"second_moment"},
       .state3 = {options.amsgrad ? "largest_second_moment" : nullptr}},
      where);
  flags_.push_back({options.maximize});
}

void AdamW::add_param_group(const std::vector<Tensor>& parameters, AdamWOptions options,
                            Where where) {
  Adam::add_param_group(parameters, as_adam(options), where);
}

void Adam::update(std::size_t group, const std::vector<ops::ParameterSlot>& slots,
                  const ops::StepControl& control) {
  ops::adam_step(slots, hyperparameters(group), step_tensor(), decoupled_, flags_[group].maximize,
                 control);
}

void Adam::set_betas(double beta1, double beta2, Where where) {
  const CallSite site(where);
  check_value(beta2 >= 0.0 && beta2 < 1.0, "beta2", beta2, "in [0, 1)");  // before beta1 changes
  set_everywhere("beta1", beta1, Forbidden::set_betas);
  set_everywhere("beta2", beta2, Forbidden::set_betas);
}

void Adam::set_eps(double value, Where where) {
  const CallSite site(where);
  set_everywhere("eps", value, Forbidden::set_eps);
}

void Adam::set_weight_decay(double value, Where where) {
  const CallSite site(where);
  set_everywhere("weight_decay", value, Forbidden::set_weight_decay);
}

}  // namespace capstan::nn

#include "nn/optim/lion.h"

namespace capstan::nn {
namespace {

using Domain = Optimizer::Domain;

// In the order of the device's array, as ops::lion_step reads it.
constexpr Optimizer::Option kOptions[] = {{"lr", "learning rate"},
                                          {"beta1", "beta1", Domain::below_1},
                                          {"beta2", "beta2", Domain::below_1},
                                          {"weight_decay", "weight decay"}};

}  // namespace

Lion::Lion(std::vector<Tensor> parameters, LionOptions options, Where where)
    : Optimizer("lion", kOptions) {
  add_param_group(parameters, options, where);
}

void Lion::add_param_group(const std::vector<Tensor>& parameters, LionOptions options,
                           Where where) {
  maximize_.reserve(maximize_.size() + 1);
  add_group(parameters, {options.learning_rate, options.beta1, options.beta2, options.weight_decay},
            {.state1 = {"momentum"}}, where);
  maximize_.push_back(options.maximize);
}

void Lion::update(std::size_t group, const std::vector<ops::ParameterSlot>& slots,
                  const ops::StepControl& control) {
  ops::lion_step(slots, hyperparameters(group), step_tensor(), maximize_[group] != 0, control);
}

}  // namespace capstan::nn

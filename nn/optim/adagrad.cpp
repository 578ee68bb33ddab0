#include "nn/optim/adagrad.h"

namespace capstan::nn {
namespace {

// In the order of the device's array, as ops::adagrad_step reads it.
constexpr Optimizer::Option kOptions[] = {{"lr", "learning rate"},
                                          {"lr_decay", "learning rate decay"},
                                          {"weight_decay", "weight decay"},
                                          {"eps", "eps"}};

}  // namespace

Adagrad::Adagrad(std::vector<Tensor> parameters, AdagradOptions options, Where where)
    : Optimizer("adagrad", kOptions) {
  add_param_group(parameters, options, where);
}

void Adagrad::add_param_group(const std::vector<Tensor>& parameters, AdagradOptions options,
                              Where where) {
  const CallSite site(where);
  check_value(options.initial_accumulator_value >= 0.0, "initial accumulator value",
              options.initial_accumulator_value, "at least 0");
  maximize_.reserve(maximize_.size() + 1);
  add_group(parameters,
            {options.learning_rate, options.lr_decay, options.weight_decay, options.eps},
            {.state1 = {"sum", options.initial_accumulator_value}}, where);
  maximize_.push_back(options.maximize);
}

void Adagrad::update(std::size_t group, const std::vector<ops::ParameterSlot>& slots,
                     const ops::StepControl& control) {
  ops::adagrad_step(slots, hyperparameters(group), step_tensor(), maximize_[group] != 0, control);
}

}  // namespace capstan::nn

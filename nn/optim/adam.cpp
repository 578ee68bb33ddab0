#include "nn/optim/adam.h"

namespace capstan::nn {
namespace {

// Places in the device's array, as ops::adam_step reads it.
constexpr std::size_t kBeta1 = 1;
constexpr std::size_t kBeta2 = 2;
constexpr std::size_t kEps = 3;
constexpr std::size_t kWeightDecay = 4;

bool is_beta(double value) { return value >= 0.0 && value < 1.0; }

AdamOptions as_adam(const AdamWOptions& options) {
  return {.learning_rate = options.learning_rate,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = options.weight_decay,
          .maximize = options.maximize};
}

}  // namespace

Adam::Adam(std::vector<Tensor> parameters, AdamOptions options, bool decoupled, const Where& where)
    : Optimizer(
          std::move(parameters),
          {options.learning_rate, options.beta1, options.beta2, options.eps, options.weight_decay},
          {.name = decoupled ? "adamw" : "adam",
           .state1 = "first_moment",
           .state2 = "second_moment"},
          where),
      decoupled_(decoupled),
      maximize_(options.maximize) {
  const CallSite site(where);
  check_value(options.learning_rate >= 0.0, "learning rate", options.learning_rate, "at least 0");
  check_value(is_beta(options.beta1), "beta1", options.beta1, "in [0, 1)");
  check_value(is_beta(options.beta2), "beta2", options.beta2, "in [0, 1)");
  check_value(options.eps >= 0.0, "eps", options.eps, "at least 0");
  check_value(options.weight_decay >= 0.0, "weight decay", options.weight_decay, "at least 0");
}

Adam::Adam(std::vector<Tensor> parameters, AdamOptions options, Where where)
    : Adam(std::move(parameters), options, /*decoupled=*/false, where) {}

AdamW::AdamW(std::vector<Tensor> parameters, AdamWOptions options, Where where)
    : Adam(std::move(parameters), as_adam(options), /*decoupled=*/true, where) {}

void Adam::update(const std::vector<ops::ParameterSlot>& slots) {
  ops::adam_step(slots, hyper(), step_tensor(), decoupled_, maximize_);
}

void Adam::set_betas(double beta1, double beta2, Where where) {
  const CallSite site(where);
  check_value(is_beta(beta1), "beta1", beta1, "in [0, 1)");
  check_value(is_beta(beta2), "beta2", beta2, "in [0, 1)");
  set_hyper(kBeta1, beta1, Forbidden::set_betas);
  set_hyper(kBeta2, beta2, Forbidden::set_betas);
}

void Adam::set_eps(double value, Where where) {
  const CallSite site(where);
  check_value(value >= 0.0, "eps", value, "at least 0");
  set_hyper(kEps, value, Forbidden::set_eps);
}

void Adam::set_weight_decay(double value, Where where) {
  const CallSite site(where);
  check_value(value >= 0.0, "weight decay", value, "at least 0");
  set_hyper(kWeightDecay, value, Forbidden::set_weight_decay);
}

}  // namespace capstan::nn

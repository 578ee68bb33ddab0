#include "nn/optim/sgd.h"

namespace capstan::nn {
namespace {

// Places in the device's array, as ops::sgd_step reads it.
constexpr std::size_t kMomentum = 1;
constexpr std::size_t kWeightDecay = 2;

}  // namespace

SGD::SGD(std::vector<Tensor> parameters, SGDOptions options, Where where)
    : Optimizer(std::move(parameters),
                {options.learning_rate, options.momentum, options.weight_decay},
                {.name = "sgd", .state1 = options.momentum != 0.0 ? "momentum" : nullptr}, where),
      has_momentum_(options.momentum != 0.0),
      nesterov_(options.nesterov),
      maximize_(options.maximize) {
  const CallSite site(where);
  check_value(options.learning_rate >= 0.0, "learning rate", options.learning_rate, "at least 0");
  check_value(options.momentum >= 0.0, "momentum", options.momentum, "at least 0");
  check_value(options.weight_decay >= 0.0, "weight decay", options.weight_decay, "at least 0");
  check_value(!nesterov_ || has_momentum_, "momentum", options.momentum, "positive for nesterov");
}

void SGD::update(const std::vector<ops::ParameterSlot>& slots) {
  ops::sgd_step(slots, hyper(), step_tensor(), nesterov_, maximize_);
}

void SGD::set_momentum(double value, Where where) {
  const CallSite site(where);
  CAPSTAN_CHECK(has_momentum_, StateError,
                "sgd: there is no momentum to set, since it was made with momentum 0; make it with "
                "a positive momentum");
  check_value(nesterov_ ? value > 0.0 : value >= 0.0, "momentum", value,
              nesterov_ ? "positive for nesterov" : "at least 0");
  set_hyper(kMomentum, value, Forbidden::set_momentum);
}

void SGD::set_weight_decay(double value, Where where) {
  const CallSite site(where);
  check_value(value >= 0.0, "weight decay", value, "at least 0");
  set_hyper(kWeightDecay, value, Forbidden::set_weight_decay);
}

}  // namespace capstan::nn

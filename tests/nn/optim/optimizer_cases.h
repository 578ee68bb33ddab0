#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/optim/adagrad.h"
#include "nn/optim/adam.h"
#include "nn/optim/lion.h"
#include "nn/optim/rmsprop.h"
#include "nn/optim/sgd.h"

namespace capstan::testing {

struct OptimizerCase {
  std::string name;
  std::function<std::unique_ptr<nn::Optimizer>(const std::vector<Tensor>&)> make;
};

template <typename Optimizer, typename Options>
[[nodiscard]] OptimizerCase optimizer_case(const char* name, Options options) {
  return {name, [options](const std::vector<Tensor>& parameters) {
            return std::make_unique<Optimizer>(parameters, options);
          }};
}

/// Every rule of every optimiser; those that PyTorch has stand in tests/golden/optimizers.py.
[[nodiscard]] inline std::vector<OptimizerCase> optimizer_cases() {
  using namespace nn;
  const auto sgd = [](const char* name, SGDOptions options) {
    return optimizer_case<SGD>(name, options);
  };
  const auto adam = [](const char* name, AdamOptions options) {
    return optimizer_case<Adam>(name, options);
  };
  const auto adamw = [](const char* name, AdamWOptions options) {
    return optimizer_case<AdamW>(name, options);
  };
  const auto rmsprop = [](const char* name, RMSpropOptions options) {
    return optimizer_case<RMSprop>(name, options);
  };
  const auto adagrad = [](const char* name, AdagradOptions options) {
    return optimizer_case<Adagrad>(name, options);
  };
  return {
      sgd("sgd", {.learning_rate = 0.1, .weight_decay = 0.05}),
      sgd("sgd_momentum", {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.05}),
      sgd("sgd_dampening",
          {.learning_rate = 0.1, .momentum = 0.8, .dampening = 0.3, .maximize = true}),
      sgd("sgd_nesterov", {.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}),
      adam("adam", {.learning_rate = 0.05, .weight_decay = 0.1}),
      adam("adam_amsgrad", {.learning_rate = 0.05, .beta1 = 0.8, .beta2 = 0.9, .amsgrad = true}),
      adamw("adamw", {.learning_rate = 0.05, .weight_decay = 0.1}),
      adamw("adamw_amsgrad", {.learning_rate = 0.05,
                              .beta1 = 0.8,
                              .beta2 = 0.9,
                              .weight_decay = 0.1,
                              .amsgrad = true,
                              .maximize = true}),
      rmsprop("rmsprop", {.learning_rate = 0.02, .alpha = 0.9, .weight_decay = 0.1}),
      rmsprop("rmsprop_centered",
              {.learning_rate = 0.02, .alpha = 0.9, .eps = 1e-3, .centered = true}),
      rmsprop("rmsprop_momentum", {.learning_rate = 0.02,
                                   .alpha = 0.9,
                                   .eps = 1e-3,
                                   .momentum = 0.5,
                                   .centered = true,
                                   .maximize = true}),
      adagrad("adagrad", {.learning_rate = 0.3, .weight_decay = 0.1}),
      adagrad("adagrad_decay", {.learning_rate = 0.3,
                                .lr_decay = 0.1,
                                .initial_accumulator_value = 0.5,
                                .maximize = true}),
      optimizer_case<Lion>("lion", LionOptions{.learning_rate = 0.02, .weight_decay = 0.1}),
  };
}

}  // namespace capstan::testing

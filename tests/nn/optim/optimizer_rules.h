#pragma once

#include <vector>

#include "framework/tensor/factory.h"
#include "nn/optim/optimizer.h"
#include "tests/nn/optim/reference_rules.h"
#include "tests/support/testing.h"

namespace capstan::testing {

/// Parameters of sizes 1, 2, ..., more than go into one kernel, each element starting at 0.5.
[[nodiscard]] inline std::vector<Tensor> reference_parameters(Device device) {
  constexpr std::int64_t kCount = 67;
  std::vector<Tensor> parameters;
  for (std::int64_t i = 0; i < kCount; ++i) {
    const Tensor parameter = empty({1 + i % 5}, {.dtype = DType::float64, .device = device});
    parameter.fill_(0.5);
    parameters.push_back(parameter.set_requires_grad());
  }
  return parameters;
}

/// Runs `optimizer` and, element by element, copies of `rule` with the same gradients.
template <typename Rule>
void check_against_reference(nn::Optimizer& optimizer, const Rule& rule, std::size_t steps = 6) {
  const std::vector<Tensor>& parameters = optimizer.parameters();
  std::vector<std::vector<double>> values;
  std::vector<std::vector<Rule>> rules;
  for (const Tensor& parameter : parameters) {
    values.push_back(parameter.to_vector<double>());
    rules.emplace_back(values.back().size(), rule);
  }
  for (std::size_t step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      std::vector<double> gradient;
      for (std::size_t j = 0; j < values[i].size(); ++j) {
        gradient.push_back(reference_gradient(step, i, j));
        rules[i][j].step(values[i][j], gradient.back());
      }
      const Tensor& parameter = parameters[i];
      parameter.set_grad(Tensor::from_vector(parameter.shape(), gradient, parameter.device()));
    }
    optimizer.step();
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    check_close(parameters[i].detach(), values[i], 1e-11);
  }
}

}  // namespace capstan::testing

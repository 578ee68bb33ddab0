#include <doctest/doctest.h>

#include <algorithm>

#include "framework/tensor/factory.h"
#include "tests/nn/optim/optimizer_cases.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::for_each_device;
using testing::OptimizerCase;

namespace {

struct Golden {
  const char* name;
  DType dtype;
  std::vector<double> values;  // three parameters after 1, 2 and 12 steps
};

const std::vector<Golden>& goldens() {
  static const std::vector<Golden> kGoldens = {
#include "tests/golden/optimizers.inc"
  };
  return kGoldens;
}

// As tests/golden/optimizers.py.
std::vector<double> gradient_of(int step) {
  std::vector<double> gradient;
  for (int i = 0; i < 3; ++i) gradient.push_back(((7 * step + 3 * i) % 11 - 5) / 4.0);
  return gradient;
}

/// The parameter after 1, 2 and 12 steps.
std::vector<double> run(const OptimizerCase& rule, DType dtype, Device device) {
  const auto make = [&](const std::vector<double>& values) {
    return Tensor::from_vector({3}, values).to(dtype).to(device);
  };
  const Tensor p = make({0.5, -1.0, 2.0}).set_requires_grad();
  const auto optimizer = rule.make({p});
  std::vector<double> got;
  for (int step = 0; step < 12; ++step) {
    p.set_grad(make(gradient_of(step)));
    optimizer->step();
    if (step != 0 && step != 1 && step != 11) continue;
    const std::vector<double> values = p.to_vector<double>();
    got.insert(got.end(), values.begin(), values.end());
  }
  return got;
}

}  // namespace

TEST_SUITE("nn/optim/optimizer_golden") {
  TEST_CASE("every optimiser of PyTorch's takes the steps that PyTorch takes") {
    for_each_device([](Device device) {
      std::size_t compared = 0;
      for (const OptimizerCase& rule : testing::optimizer_cases()) {
        for (const Golden& golden : goldens()) {
          if (rule.name != golden.name) continue;
          ++compared;
          CAPTURE(rule.name);
          const double tolerance = golden.dtype == DType::float32 ? 5e-6 : 1e-12;
          const Tensor got = Tensor::from_vector({9}, run(rule, golden.dtype, device));
          check_close(got, golden.values, tolerance);
        }
      }
      CHECK(compared == goldens().size());
      CHECK(compared == 2 * (testing::optimizer_cases().size() - 1));  // Lion is not PyTorch's
    });
  }
}

#include "nn/optim/sgd.h"

#include <doctest/doctest.h>

#include "framework/tensor/factory.h"
#include "ops/creation.h"
#include "tests/nn/optim/optimizer_rules.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_against_reference;
using testing::check_close;
using testing::for_each_device;
using testing::reference_parameters;
using testing::SgdReference;
using testing::tolerance_for;

namespace {

/// Parameter 1 with gradient 0.5.
Tensor make_parameter(Device device) {
  const Tensor parameter = ones({1}, {.device = device});
  parameter.set_requires_grad();
  parameter.set_grad(full({1}, 0.5, {.device = device}));
  return parameter;
}

}  // namespace

TEST_SUITE("nn/optim/sgd") {
  TEST_CASE("momentum and Nesterov match values computed by hand") {
    for_each_device([](Device device) {
      const double tolerance = tolerance_for(DType::float32, device);
      const Tensor p = make_parameter(device);
      nn::SGD plain({p}, {.learning_rate = 0.1, .momentum = 0.9});
      for (const double want : {0.95, 0.855, 0.7195}) {
        plain.step();
        check_close(p.detach(), {want}, tolerance);
      }
      // v: 0.5, 0.95; p -= 0.1 * (0.5 + 0.9 v).
      const Tensor q = make_parameter(device);
      nn::SGD nesterov({q}, {.learning_rate = 0.1, .momentum = 0.9, .nesterov = true});
      for (const double want : {0.905, 0.7695}) {
        nesterov.step();
        check_close(q.detach(), {want}, tolerance);
      }
    });
  }

  TEST_CASE("weight decay and maximize match values computed by hand") {
    for_each_device([](Device device) {
      const double tolerance = tolerance_for(DType::float32, device);
      const Tensor p = make_parameter(device);
      nn::SGD decaying({p}, {.learning_rate = 0.1, .weight_decay = 0.5});
      for (const double want : {0.9, 0.805}) {  // 1 - 0.1 (0.5 + 0.5), then 0.9 - 0.1 (0.5 + 0.45)
        decaying.step();
        check_close(p.detach(), {want}, tolerance);
      }
      const Tensor q = make_parameter(device);
      nn::SGD climbing({q}, {.learning_rate = 0.1, .maximize = true});
      climbing.step();
      check_close(q.detach(), {1.05}, tolerance);
    });
  }

  TEST_CASE("many parameters follow the published rule over several steps") {
    for_each_device([](Device device) {
      nn::SGD plain(reference_parameters(device), {.learning_rate = 0.1});
      check_against_reference(plain, SgdReference{.learning_rate = 0.1});

      nn::SGD momentum(reference_parameters(device),
                       {.learning_rate = 0.1, .momentum = 0.8, .weight_decay = 0.05});
      check_against_reference(
          momentum, SgdReference{.learning_rate = 0.1, .momentum = 0.8, .weight_decay = 0.05});

      nn::SGD nesterov(
          reference_parameters(device),
          {.learning_rate = 0.1, .momentum = 0.8, .weight_decay = 0.05, .nesterov = true});
      check_against_reference(
          nesterov,
          SgdReference{
              .learning_rate = 0.1, .momentum = 0.8, .weight_decay = 0.05, .nesterov = true});
    });
  }

  TEST_CASE("hyperparameters change from the next step on") {
    for_each_device([](Device device) {
      const Tensor p = make_parameter(device);
      nn::SGD sgd({p}, {.learning_rate = 0.1, .momentum = 0.9});
      sgd.step();  // v = 0.5, p = 0.95
      sgd.set_learning_rate(0.2);
      sgd.set_momentum(0.5);
      sgd.set_weight_decay(1.0);
      CHECK(sgd.learning_rate() == 0.2);
      check_close(sgd.hyperparameters(), {0.2, 0.5, 1.0, 0.0}, 0.0);
      sgd.step();  // d = 0.5 + 0.95, v = 0.25 + 1.45 = 1.7, p = 0.95 - 0.34
      check_close(p.detach(), {0.61}, tolerance_for(DType::float32, device));
    });
  }

  TEST_CASE("values out of their domain are refused") {
    const Tensor p = make_parameter(Device::cpu());
    CHECK_THROWS_WITH_AS(nn::SGD({p}, {.learning_rate = -1.0}),
                         doctest::Contains("sgd: learning rate must be at least 0, got -1"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::SGD({p}, {.nesterov = true}),
                         doctest::Contains("sgd: momentum must be positive for nesterov, got 0"),
                         ValueError);
    CHECK_THROWS_AS(nn::SGD({p}, {.momentum = -0.1}), ValueError);
    nn::SGD sgd({p}, {.learning_rate = 0.1});
    CHECK_THROWS_AS(sgd.set_weight_decay(-1.0), ValueError);
    CHECK_THROWS_WITH_AS(sgd.set_momentum(0.9),
                         doctest::Contains("sgd: there is no momentum to set"), StateError);
    check_close(sgd.hyperparameters(), {0.1, 0.0, 0.0, 0.0}, 0.0);
  }
}

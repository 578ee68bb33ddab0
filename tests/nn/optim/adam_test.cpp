#include "nn/optim/adam.h"

#include <doctest/doctest.h>

#include "framework/tensor/factory.h"
#include "ops/creation.h"
#include "tests/nn/optim/optimizer_rules.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::AdamReference;
using testing::check_against_reference;
using testing::check_close;
using testing::for_each_device;
using testing::reference_parameters;

namespace {

Tensor make_parameter(Device device, double value, double gradient) {
  const TensorOptions place{.dtype = DType::float64, .device = device};
  const Tensor parameter = full({1}, value, place);
  parameter.set_requires_grad();
  parameter.set_grad(full({1}, gradient, place));
  return parameter;
}

}  // namespace

TEST_SUITE("nn/optim/adam") {
  TEST_CASE("a constant gradient moves the parameter by the learning rate each step") {
    for_each_device([](Device device) {
      const Tensor p = make_parameter(device, 1.0, 0.5);
      nn::Adam adam({p}, {.learning_rate = 0.1});
      for (const double want : {0.9, 0.8, 0.7}) {
        adam.step();
        check_close(p.detach(), {want}, 1e-7);  // eps shortens each step by 2e-9
      }
      CHECK(adam.step_count() == 3);
    });
  }

  TEST_CASE("a changing gradient matches values computed by hand") {
    for_each_device([](Device device) {
      const Tensor p = make_parameter(device, 0.0, 1.0);
      nn::Adam adam({p}, {.learning_rate = 1.0, .beta1 = 0.5, .beta2 = 0.75, .eps = 0.0});
      adam.step();  // m 0.5 / 0.5, v 0.25 / 0.25: p = -1
      check_close(p.detach(), {-1.0}, 1e-12);
      p.set_grad(full({1}, -2.0, {.dtype = DType::float64, .device = device}));
      adam.step();  // m (0.25 - 1) / 0.75 = -1, v (0.1875 + 1) / 0.4375 = 19 / 7
      check_close(p.detach(), {-1.0 + 1.0 / 1.6475089421}, 1e-9);
    });
  }

  TEST_CASE("Adam's weight decay goes through the moments, AdamW's does not") {
    for_each_device([](Device device) {
      // The first step is the sign of the gradient: Adam's decayed one 1 * 0.5 - 0.25 is positive.
      const Tensor p = make_parameter(device, 1.0, -0.25);
      nn::Adam adam({p}, {.learning_rate = 0.1, .weight_decay = 0.5});
      adam.step();
      check_close(p.detach(), {0.9}, 1e-7);
      const Tensor q = make_parameter(device, 1.0, -0.25);
      nn::AdamW adamw({q}, {.learning_rate = 0.1, .weight_decay = 0.5});
      adamw.step();  // 1 - 0.1 * 0.5 * 1 + 0.1
      check_close(q.detach(), {1.05}, 1e-7);
    });
  }

  TEST_CASE("many parameters follow the published rules over several steps") {
    for_each_device([](Device device) {
      nn::Adam adam(reference_parameters(device), {.learning_rate = 0.01});
      check_against_reference(adam, AdamReference{.learning_rate = 0.01});

      nn::Adam decaying(
          reference_parameters(device),
          {.learning_rate = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1});
      check_against_reference(decaying, AdamReference{.learning_rate = 0.02,
                                                      .beta1 = 0.8,
                                                      .beta2 = 0.95,
                                                      .eps = 1e-3,
                                                      .weight_decay = 0.1});

      nn::AdamW adamw(reference_parameters(device), {.learning_rate = 0.02, .weight_decay = 0.1});
      check_against_reference(
          adamw, AdamReference{.learning_rate = 0.02, .weight_decay = 0.1, .decoupled = true});
    });
  }

  TEST_CASE("maximize climbs") {
    for_each_device([](Device device) {
      const Tensor p = make_parameter(device, 1.0, 0.5);
      nn::Adam adam({p}, {.learning_rate = 0.1, .maximize = true});
      adam.step();
      check_close(p.detach(), {1.1}, 1e-7);
    });
  }

  TEST_CASE("hyperparameters change from the next step on") {
    const Tensor p = make_parameter(Device::cpu(), 1.0, 0.5);
    nn::AdamW adamw({p}, {.learning_rate = 0.1});
    adamw.set_learning_rate(0.0);
    adamw.step();
    check_close(p.detach(), {1.0}, 0.0);
    adamw.set_betas(0.5, 0.25);
    adamw.set_eps(1e-4);
    adamw.set_weight_decay(0.5);
    check_close(adamw.hyperparameters(), {0.0, 0.5, 0.25, 1e-4, 0.5}, 0.0);
  }

  TEST_CASE("values out of their domain are refused") {
    const Tensor p = make_parameter(Device::cpu(), 1.0, 0.5);
    CHECK_THROWS_WITH_AS(nn::Adam({p}, {.beta1 = 1.0}),
                         doctest::Contains("adam: beta1 must be in [0, 1), got 1"), ValueError);
    CHECK_THROWS_WITH_AS(nn::AdamW({p}, {.eps = -1.0}),
                         doctest::Contains("adamw: eps must be at least 0, got -1"), ValueError);
    nn::Adam adam({p});
    CHECK_THROWS_AS(adam.set_betas(0.9, -0.1), ValueError);
    check_close(adam.hyperparameters(), {1e-3, 0.9, 0.999, 1e-8, 0.0}, 0.0);
  }
}

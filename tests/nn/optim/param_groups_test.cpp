#include <doctest/doctest.h>

#include "framework/tensor/factory.h"
#include "graphs/captured_step.h"
#include "ops/creation.h"
#include "tests/nn/optim/optimizer_cases.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::check_identical;
using testing::for_each_device;

namespace {

/// Parameter 1 with gradient 0.5.
Tensor make_parameter(Device device = Device::cpu(), std::int64_t size = 1) {
  const Tensor parameter = ones({size}, {.device = device}).set_requires_grad();
  parameter.set_grad(full({size}, 0.5, {.device = device}));
  return parameter;
}

}  // namespace

TEST_SUITE("nn/optim/param_groups") {
  TEST_CASE("each group follows its own options, and a step counts once") {
    for_each_device([](Device device) {
      const Tensor p = make_parameter(device);
      const Tensor q = make_parameter(device);
      nn::SGD sgd({p}, {.learning_rate = 1.0});
      sgd.add_param_group({q}, {.learning_rate = 0.5, .momentum = 0.5, .maximize = true});
      sgd.step();
      sgd.step();
      check_close(p.detach(), {0.0}, 0.0);
      check_close(q.detach(), {1.625}, 0.0);  // v = -0.5, -0.75
      CHECK(sgd.step_count() == 2);
      CHECK(sgd.group_count() == 2);
      sgd.set_learning_rate(1, 0.0);
      CHECK(sgd.learning_rate() == 1.0);
      CHECK(sgd.learning_rate(1) == 0.0);
      sgd.set_option("weight_decay", 1.0, 0);
      sgd.step();
      check_close(p.detach(), {-0.5}, 0.0);
      check_close(q.detach(), {1.625}, 0.0);
      sgd.set_learning_rate(0.25);
      CHECK(sgd.option("lr", 0) == 0.25);
      CHECK(sgd.option("lr", 1) == 0.25);
      check_close(sgd.hyperparameters(1), {0.25, 0.5, 0.0, 0.0}, 0.0);
    });
  }

  TEST_CASE("groups act as optimisers of their own, RMSprop and AdamW") {
    for_each_device([](Device device) {
      const auto parameter = [&] { return make_parameter(device, 5); };
      {
        const Tensor a = parameter(), b = parameter(), c = parameter(), d = parameter();
        nn::RMSprop both({a}, {.learning_rate = 0.1, .centered = true});
        both.add_param_group({b}, {.learning_rate = 0.2, .momentum = 0.9});
        nn::RMSprop first({c}, {.learning_rate = 0.1, .centered = true});
        nn::RMSprop second({d}, {.learning_rate = 0.2, .momentum = 0.9});
        for (int i = 0; i < 3; ++i) {
          both.step();
          first.step();
          second.step();
        }
        check_identical(a.detach(), c.detach());
        check_identical(b.detach(), d.detach());
      }
      {
        const Tensor a = parameter(), b = parameter(), c = parameter(), d = parameter();
        nn::AdamW both({a}, {.learning_rate = 0.1});
        both.add_param_group({b}, {.learning_rate = 0.2, .beta2 = 0.5, .amsgrad = true});
        nn::AdamW first({c}, {.learning_rate = 0.1});
        nn::AdamW second({d}, {.learning_rate = 0.2, .beta2 = 0.5, .amsgrad = true});
        for (int i = 0; i < 3; ++i) {
          both.step();
          first.step();
          second.step();
        }
        check_identical(a.detach(), c.detach());
        check_identical(b.detach(), d.detach());
      }
    });
  }

  TEST_CASE("Lion moves by the sign of the mixed momentum, values by hand") {
    for_each_device([](Device device) {
      const Tensor p = make_parameter(device);
      nn::Lion lion({p}, {.learning_rate = 0.125, .beta1 = 0.5, .beta2 = 0.5, .weight_decay = 1.0});
      lion.step();  // m = 0.25; 0.875 - 0.125
      check_close(p.detach(), {0.75}, 0.0);
      p.set_grad(full({1}, -0.125, {.device = device}));
      lion.step();  // 0.125 - 0.0625 > 0: 0.75 * 0.875 - 0.125; m = 0.0625
      check_close(p.detach(), {0.53125}, 0.0);
      p.set_grad(full({1}, -0.0625, {.device = device}));
      lion.step();  // 0: decay alone
      check_close(p.detach(), {0.46484375}, 0.0);
    });
  }

  TEST_CASE("a step leaves everything as it is while the device says skip") {
    for_each_device([](Device device) {
      for (const testing::OptimizerCase& rule : testing::optimizer_cases()) {
        CAPTURE(rule.name);
        const Tensor p = make_parameter(device, 3);
        const auto optimizer = rule.make({p});
        const Tensor skip = ones({}, {.device = device});
        optimizer->step_unless(skip);
        check_close(p.detach(), {1.0, 1.0, 1.0}, 0.0);
        CHECK(optimizer->step_count() == 0);
        skip.fill_(0.0);
        optimizer->step_unless(skip);
        CHECK(optimizer->step_count() == 1);
        const Tensor q = make_parameter(device, 3);
        rule.make({q})->step();
        check_identical(p.detach(), q.detach());
      }
    });
  }

  TEST_CASE("the state of all groups goes out and comes back") {
    const Tensor p = make_parameter();
    const Tensor q = make_parameter();
    nn::Adam adam({p}, {.learning_rate = 0.5});
    adam.add_param_group({q}, {.learning_rate = 0.25, .amsgrad = true});
    adam.step();
    std::vector<std::string> names;
    nn::StateDict saved;
    for (const auto& [name, tensor] : adam.state_dict()) {
      names.push_back(name);
      saved.emplace_back(name, tensor.clone());
    }
    CHECK(names == std::vector<std::string>{"step", "hyper", "hyper.1", "0.first_moment",
                                            "0.second_moment", "1.first_moment", "1.second_moment",
                                            "1.largest_second_moment"});
    const Tensor r = p.detach().clone().set_requires_grad();
    const Tensor s = q.detach().clone().set_requires_grad();
    nn::Adam other({r});
    other.add_param_group({s}, {.amsgrad = true});
    other.load_state_dict(saved);
    CHECK(other.learning_rate(1) == 0.25);
    for (const Tensor& t : {r, s}) t.set_grad(full({1}, -0.25));
    for (const Tensor& t : {p, q}) t.set_grad(full({1}, -0.25));
    adam.step();
    other.step();
    check_identical(r.detach(), p.detach());
    check_identical(s.detach(), q.detach());
  }

  TEST_CASE("bad groups and options are refused, and nothing changes") {
    const Tensor p = make_parameter();
    nn::SGD sgd({p}, {.learning_rate = 0.5, .momentum = 0.5, .nesterov = true});
    CHECK_THROWS_WITH_AS(sgd.add_param_group({p}, {}),
                         doctest::Contains("sgd: parameter 1 (float32[1] on cpu) is listed twice"),
                         ValueError);
    CHECK_THROWS_WITH_AS(sgd.add_param_group({make_parameter()}, {.momentum = -1.0}),
                         doctest::Contains("sgd: momentum must be at least 0, got -1"), ValueError);
    CHECK_THROWS_WITH_AS(sgd.add_param_group({make_parameter()},
                                             {.momentum = 0.5, .dampening = 0.5, .nesterov = true}),
                         doctest::Contains("sgd: dampening must be 0 for nesterov, got 0.5"),
                         ValueError);
    CHECK_THROWS_AS(sgd.set_option("dampening", 0.5, 0), ValueError);
    CHECK_THROWS_WITH_AS(
        sgd.set_option("alpha", 0.5, 0),
        doctest::Contains("sgd: there is no option \"alpha\"; there are lr, momentum, "
                          "weight_decay, dampening"),
        ValueError);
    CHECK_THROWS_WITH_AS(sgd.set_learning_rate(1, 0.5),
                         doctest::Contains("sgd: there is no group 1 of parameters; there are 1"),
                         IndexError);
    CHECK(sgd.group_count() == 1);
    check_close(sgd.hyperparameters(), {0.5, 0.5, 0.0, 0.0}, 0.0);
    CHECK_THROWS_AS(nn::RMSprop({p}, {.alpha = 1.0}), ValueError);
    CHECK_THROWS_AS(nn::Adagrad({p}, {.initial_accumulator_value = -1.0}), ValueError);
    CHECK_THROWS_AS(nn::Lion({p}, {.beta2 = 1.5}), ValueError);
    nn::RMSprop rmsprop({p});
    CHECK_THROWS_WITH_AS(rmsprop.set_option("momentum", 0.5, 0),
                         doctest::Contains("rmsprop: there is no momentum to set"), StateError);
  }

  TEST_CASE("a step that is tried or recorded cannot add a group, and the optimiser is as before") {
    for_each_device([](Device device) {
      const Tensor p = make_parameter(device);
      const Tensor q = make_parameter(device);
      nn::SGD sgd({p}, {.learning_rate = 0.5});
      for (const int warmup : {0, 1}) {
        CapturedStep step(device, [&] { sgd.add_param_group({q}, {}); }, {.warmup = warmup});
        CHECK_THROWS_AS(step(), CaptureError);
      }
      CHECK(sgd.group_count() == 1);
      CHECK(sgd.parameters().size() == 1);
    });
  }
}

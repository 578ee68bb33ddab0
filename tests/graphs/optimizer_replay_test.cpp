#include <doctest/doctest.h>

#include <functional>
#include <memory>

#include "framework/tensor/factory.h"
#include "graphs/capture_scope.h"
#include "graphs/graph.h"
#include "nn/optim/adam.h"
#include "nn/optim/sgd.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::check_identical;
using testing::for_each_device;

namespace {

using MakeOptimizer = std::function<std::unique_ptr<nn::Optimizer>(const Tensor&)>;

struct Setup {
  Tensor parameter;
  std::unique_ptr<nn::Optimizer> optimizer;
};

Setup make_setup(Device device, double value, double gradient, const MakeOptimizer& make) {
  Setup setup;
  setup.parameter = full({1}, value, {.device = device}).set_requires_grad();
  setup.parameter.set_grad(full({1}, gradient, {.device = device}));
  setup.optimizer = make(setup.parameter);
  return setup;
}

/// Two eager steps, one captured, which does not run, and three replays.
void check_five_steps(Device device, double want, const MakeOptimizer& make) {
  Setup setup = make_setup(device, 1.0, 0.5, make);
  nn::Optimizer& optimizer = *setup.optimizer;
  optimizer.step();
  optimizer.step();
  const Tensor after_two = setup.parameter.detach().clone();
  Graph graph(device);
  capture(graph, [&] { optimizer.step(); });
  check_identical(setup.parameter.detach(), after_two);
  CHECK(optimizer.step_count() == 2);
  for (int i = 0; i < 3; ++i) graph.replay();
  check_close(setup.parameter.detach(), {want}, 1e-5);
  CHECK(optimizer.step_count() == 5);

  Setup eager = make_setup(device, 1.0, 0.5, make);
  for (int i = 0; i < 5; ++i) eager.optimizer->step();
  check_identical(setup.parameter.detach(), eager.parameter.detach());
}

/// Captures one step of SGD on a parameter 10 with gradient 1.
struct CapturedSgd {
  CapturedSgd(Device device, nn::SGDOptions options)
      : parameter(full({1}, 10.0, {.device = device}).set_requires_grad()),
        sgd({parameter}, options),
        graph(device) {
    parameter.set_grad(ones({1}, {.device = device}));
    capture(graph, [&] { sgd.step(); });
  }
  void replay_to(double want) {
    graph.replay();
    check_close(parameter.detach(), {want}, 1e-6);
  }
  Tensor parameter;
  nn::SGD sgd;
  Graph graph;
};

}  // namespace

TEST_SUITE("graphs/optimizer_replay") {
  TEST_CASE("B1: Adam's step count advances under replay") {
    for_each_device([](Device device) {
      check_five_steps(device, 0.5, [](const Tensor& p) {
        return std::make_unique<nn::Adam>(std::vector{p}, nn::AdamOptions{.learning_rate = 0.1});
      });
    });
  }

  TEST_CASE("B1: AdamW's step count advances under replay") {
    for_each_device([](Device device) {
      // p <- 0.99 p - 0.1, five times, from 1.
      check_five_steps(device, 0.4608895, [](const Tensor& p) {
        return std::make_unique<nn::AdamW>(
            std::vector{p}, nn::AdamWOptions{.learning_rate = 0.1, .weight_decay = 0.1});
      });
    });
  }

  TEST_CASE("B1: the momentum of SGD builds up under replay") {
    for_each_device([](Device device) {
      // v: 0.5, 0.95, 1.355, 1.7195, 2.04755; in all 6.57205.
      check_five_steps(device, 0.342795, [](const Tensor& p) {
        return std::make_unique<nn::SGD>(std::vector{p},
                                         nn::SGDOptions{.learning_rate = 0.1, .momentum = 0.9});
      });
    });
  }

  TEST_CASE("B3: a replayed step sees a new learning rate") {
    for_each_device([](Device device) {
      CapturedSgd captured(device, {.learning_rate = 1.0});
      const void* const address = captured.sgd.hyperparameters().raw_data();
      captured.replay_to(9.0);
      captured.sgd.set_learning_rate(0.1);
      captured.replay_to(8.9);
      CHECK(captured.sgd.hyperparameters().raw_data() == address);
    });
  }

  TEST_CASE("B3: a replayed step sees a new momentum") {
    for_each_device([](Device device) {
      CapturedSgd captured(device, {.learning_rate = 1.0, .momentum = 0.5});
      captured.replay_to(9.0);  // v = 1
      captured.replay_to(7.5);  // v = 1.5
      captured.sgd.set_momentum(0.0);
      captured.replay_to(6.5);  // v = 1
    });
  }

  TEST_CASE("B3: a replayed step sees a new weight decay") {
    for_each_device([](Device device) {
      CapturedSgd captured(device, {.learning_rate = 1.0});
      captured.replay_to(9.0);
      captured.sgd.set_weight_decay(0.5);
      captured.replay_to(3.5);  // 9 - (1 + 4.5)
    });
  }

  TEST_CASE("B3: replayed Adam sees new betas, eps and learning rate") {
    for_each_device([](Device device) {
      const auto run = [device](bool replayed) {
        Setup setup = make_setup(device, 1.0, 0.5, [](const Tensor& p) {
          return std::make_unique<nn::Adam>(std::vector{p}, nn::AdamOptions{.learning_rate = 0.1});
        });
        nn::Adam& adam = static_cast<nn::Adam&>(*setup.optimizer);
        Graph graph(device);
        if (replayed) capture(graph, [&] { adam.step(); });
        const auto step = [&] { replayed ? graph.replay() : adam.step(); };
        step();
        adam.set_betas(0.5, 0.9);
        adam.set_eps(0.25);
        step();
        adam.set_learning_rate(0.03);
        adam.set_weight_decay(0.5);
        step();
        return setup.parameter.detach();
      };
      check_identical(run(true), run(false));
    });
  }

  TEST_CASE("loaded optimiser state reaches the replay") {
    for_each_device([](Device device) {
      CapturedSgd captured(device, {.learning_rate = 1.0, .momentum = 0.5});
      captured.replay_to(9.0);
      const nn::StateDict state{
          {"step", full({}, 7.0, {.dtype = DType::int64})},
          {"hyper", Tensor::from_vector({4}, std::vector<double>{0.5, 0.5, 0.0, 0.0})},
          {"0.momentum", full({1}, 2.0)}};
      captured.sgd.load_state_dict(state);
      captured.replay_to(8.0);  // v = 0.5 * 2 + 1, times 0.5
      CHECK(captured.sgd.step_count() == 8);
    });
  }

  TEST_CASE("B5: a parameter without a gradient is not skipped quietly while capturing") {
    for_each_device([](Device device) {
      const Tensor used = ones({1}, {.device = device}).set_requires_grad();
      const Tensor unused = ones({2}, {.device = device}).set_requires_grad();
      used.set_grad(ones({1}, {.device = device}));
      nn::SGD sgd({used, unused}, {.learning_rate = 0.5});
      Graph graph(device);
      CHECK_THROWS_WITH_AS(capture(graph, [&] { sgd.step(); }),
                           doctest::Contains("sgd: parameter 1 (float32[2]"), CaptureError);
      unused.set_requires_grad(false);  // said to be frozen, it may be skipped
      capture(graph, [&] { sgd.step(); });
      graph.replay();
      check_close(used.detach(), {0.5}, 0.0);
      check_close(unused.detach(), {1.0, 1.0}, 0.0);
    });
  }
}

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "autograd/arithmetic.h"
#include "autograd/linalg.h"
#include "autograd/loss.h"
#include "autograd/reduce.h"
#include "framework/random/generator.h"
#include "graphs/capture_scope.h"
#include "graphs/captured_step.h"
#include "nn/activations.h"
#include "nn/container.h"
#include "nn/linear.h"
#include "nn/optim/adam.h"
#include "nn/optim/sgd.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;
using doctest::Contains;

namespace {

constexpr std::int64_t kFeatures = 12;
constexpr std::int64_t kClasses = 5;

Tensor inputs(std::int64_t rows, std::uint64_t seed, Device device) {
  return random_tensor({rows, kFeatures}, seed, DType::float32, device);
}

Tensor labels(std::int64_t rows, std::int64_t shift, Device device) {
  std::vector<std::int64_t> values;
  for (std::int64_t row = 0; row < rows; ++row) values.push_back((row * 7 + shift) % kClasses);
  return Tensor::from_vector({rows}, values, device);
}

// A small classifier with dropout, its optimiser, and one step of training.
struct Training {
  explicit Training(Device place)
      : device(place),
        generator(11, device),
        net(nn::Linear(kFeatures, 16, {.device = device, .generator = &generator}), nn::ReLU(),
            nn::Dropout(0.25, &generator),
            nn::Linear(16, kClasses, {.device = device, .generator = &generator})),
        sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9}) {}

  Tensor step(const Tensor& x, const Tensor& y) {
    sgd.zero_grad();
    const Tensor loss = cross_entropy(net(x), y);
    loss.backward();
    sgd.step();
    return loss;
  }

  CapturedStep captured(StepOptions options = {}) {
    return CapturedStep(
        device, [this](const Tensor& x, const Tensor& y) { return step(x, y); }, options);
  }

  Device device;
  Generator generator;
  nn::Sequential net;
  nn::SGD sgd;
};

void check_same_state(const Training& a, const Training& b) {
  const auto left = a.net.parameters();
  const auto right = b.net.parameters();
  REQUIRE(left.size() == right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    check_identical(left[i].detach(), right[i].detach());
    REQUIRE(left[i].grad().defined() == right[i].grad().defined());
    if (left[i].grad().defined()) check_identical(left[i].grad(), right[i].grad());
  }
  for (const auto& [name, tensor] : a.sgd.state_dict()) {
    for (const auto& [other_name, other] : b.sgd.state_dict()) {
      if (name == other_name) check_identical(tensor, other);
    }
  }
  CHECK(a.generator.state() == b.generator.state());
}

}  // namespace

TEST_SUITE("graphs/training_step") {
  TEST_CASE("20 replayed steps equal 20 eager ones bit for bit, the odd last batch included") {
    for_each_device([](Device device) {
      Training eager(device);
      Training replayed(device);
      CapturedStep step = replayed.captured();
      for (int i = 0; i < 20; ++i) {
        const std::int64_t rows = i % 5 == 4 ? 3 : 8;
        const Tensor x = inputs(rows, static_cast<std::uint64_t>(i), device);
        const Tensor y = labels(rows, i, device);
        const Tensor want = eager.step(x, y);
        check_identical(step(x, y), want.detach());
      }
      check_same_state(replayed, eager);
      CHECK(step.stats().captures == 2);
      CHECK(step.stats().replays == 20);
    });
  }

  TEST_CASE("warming up and capturing leave no trace") {
    for_each_device([](Device device) {
      const Tensor x = inputs(8, 1, device);
      const Tensor y = labels(8, 0, device);
      for (const int warmup : {0, 1, 4}) {
        Training eager(device);
        Training replayed(device);
        CapturedStep step = replayed.captured({.warmup = warmup});
        check_identical(step(x, y), eager.step(x, y).detach());
        check_same_state(replayed, eager);
        CHECK(replayed.sgd.step_count() == 1);
      }
    });
  }

  TEST_CASE("a new learning rate holds from the next replay on") {
    for_each_device([](Device device) {
      Training eager(device);
      Training replayed(device);
      CapturedStep step = replayed.captured();
      const Tensor x = inputs(8, 1, device);
      const Tensor y = labels(8, 0, device);
      for (int i = 0; i < 6; ++i) {
        eager.sgd.set_learning_rate(0.1 / (i + 1));
        replayed.sgd.set_learning_rate(0.1 / (i + 1));
        check_identical(step(x, y), eager.step(x, y).detach());
      }
      check_same_state(replayed, eager);
      CHECK(step.stats().captures == 1);
    });
  }

  TEST_CASE("eager and replayed steps may alternate") {
    for_each_device([](Device device) {
      Training eager(device);
      Training mixed(device);
      CapturedStep step = mixed.captured();
      for (int i = 0; i < 9; ++i) {
        const Tensor x = inputs(8, static_cast<std::uint64_t>(i), device);
        const Tensor y = labels(8, i, device);
        const Tensor got = i % 3 == 1 ? mixed.step(x, y).detach() : step(x, y);
        check_identical(got, eager.step(x, y).detach());
      }
      check_same_state(mixed, eager);
    });
  }

  TEST_CASE("B5: after gradients were cleared, a replay puts them back") {
    for_each_device([](Device device) {
      Training training(device);
      CapturedStep step = training.captured();
      const Tensor x = inputs(8, 1, device);
      const Tensor y = labels(8, 0, device);
      (void)step(x, y);
      const Tensor weight = training.net.parameters()[0];
      const Tensor buffer = weight.grad();
      REQUIRE(buffer.defined());
      training.sgd.zero_grad();
      CHECK_FALSE(weight.grad().defined());
      (void)step(x, y);
      CHECK(weight.grad().is_same(buffer));
      CHECK(step.stats().captures == 1);
    });
  }

  TEST_CASE("A1: gradients accumulate over micro-batches as in an eager run") {
    for_each_device([](Device device) {
      const Tensor w = zeros({2, 3}, {.device = device}).set_requires_grad();
      CapturedStep step(device, [&](const Tensor& x) { linear(x, w).sum().backward(); });
      const Tensor ones_in = full({2, 3}, 1.0, {.device = device});
      const Tensor tens_in = full({2, 3}, 10.0, {.device = device});
      for (int round = 0; round < 3; ++round) {
        w.set_grad(Tensor());
        (void)step(ones_in);
        check_close(w.grad(), full({2, 3}, 2.0, {.device = device}), 0.0);
        (void)step(tens_in);
        check_close(w.grad(), full({2, 3}, 22.0, {.device = device}), 0.0);
        (void)step(tens_in);
        check_close(w.grad(), full({2, 3}, 42.0, {.device = device}), 0.0);
      }
      CHECK(step.stats().captures == 2);  // one starts the gradient, one adds to it

      w.set_grad(full({2, 3}, 100.0, {.device = device}));
      (void)step(ones_in);
      check_close(w.grad(), full({2, 3}, 102.0, {.device = device}), 0.0);
      CHECK(step.stats().captures == 2);
    });
  }

  TEST_CASE("a step of the optimiser alone follows gradients that come from outside") {
    for_each_device([](Device device) {
      const Tensor w = full({2}, 10.0, {.device = device}).set_requires_grad();
      nn::SGD sgd({w}, {.learning_rate = 1.0});
      CapturedStep step(device, [&] { sgd.step(); });
      double want = 10.0;
      for (const double gradient : {1.0, 2.0, 3.0}) {
        w.set_grad(full({2}, gradient, {.device = device}));
        (void)step();
        want -= gradient;
        check_close(w.detach(), {want, want}, 0.0);
      }
      CHECK(step.stats().captures == 1);
    });
  }

  TEST_CASE("R7: freezing a parameter leads to a new recording") {
    for_each_device([](Device device) {
      const Tensor a = ones({2}, {.device = device}).set_requires_grad();
      const Tensor b = ones({2}, {.device = device}).set_requires_grad();
      CapturedStep step(device, [&](const Tensor& x) {
        a.set_grad(Tensor());
        b.set_grad(Tensor());
        (x * a * b).sum().backward();
      });
      const Tensor x = full({2}, 3.0, {.device = device});
      (void)step(x);
      check_close(b.grad(), {3, 3}, 0.0);
      b.set_requires_grad(false);
      (void)step(x);
      CHECK_FALSE(b.grad().defined());
      check_close(a.grad(), {3, 3}, 0.0);
    });
  }

  TEST_CASE(
      "a label out of range in a replay is raised when the host waits, and training goes on") {
    for_each_device([](Device device) {
      Training training(device);
      CapturedStep step = training.captured();
      const Tensor x = inputs(8, 1, device);
      (void)step(x, labels(8, 0, device));
      const Tensor bad = labels(8, 0, device);
      bad.slice(0, 3, 4).fill_(12.0);
      const auto run_and_wait = [&] {
        (void)step(x, bad);
        synchronize(device);
      };
      CHECK_THROWS_WITH_AS(run_and_wait(),
                           Contains("label 12 at position 3 is out of range [0, 5)"), IndexError);
      CHECK_NOTHROW(synchronize(device));
      const Tensor loss = step(x, labels(8, 0, device));
      CHECK_NOTHROW(synchronize(device));
      CHECK(loss.defined());
      CHECK(step.stats().captures == 1);
    });
  }

  TEST_CASE("J1: a loss that outlives a warm-up on the default stream does not disturb a capture") {
    for_each_device([](Device device) {
      Training eager(device);
      Training captured(device);
      const Tensor x = inputs(8, 1, device);
      const Tensor y = labels(8, 0, device);
      const Tensor unused = ones({3}, {.device = device}).set_requires_grad();
      const Tensor kept_loss = captured.step(x, y);
      (void)eager.step(x, y);
      Tensor loss;
      Graph graph(device);
      capture(graph, [&] {
        loss = cross_entropy(captured.net(x), y) + (unused * 0.0).sum();
        captured.sgd.zero_grad();
        loss.backward();
        captured.sgd.step();
      });
      graph.replay();
      check_identical(loss.detach(), eager.step(x, y).detach());
      check_same_state(captured, eager);
      CHECK(kept_loss.item() > 0.0);
    });
  }

  TEST_CASE("the recording of a step names modules and lines of the user") {
    for_each_device([](Device device) {
      Training training(device);
      training.net.set_name("net");
      CapturedStep step = training.captured();
      (void)step(inputs(8, 1, device), labels(8, 0, device));
      bool first_layer = false;
      for (const RecordedOp& operation : step.graph().recording().operations) {
        CAPTURE(operation.name);
        CHECK(operation.where.line() != 0);
        if (operation.module == "net.0") first_layer = true;
      }
      CHECK(first_layer);
      CHECK(step.graph().to_dot().find("\\nnet.0\\n") != std::string::npos);
    });
  }

  TEST_CASE("Adam trains under a captured step as in an eager run") {
    for_each_device([](Device device) {
      std::vector<Tensor> losses[2];
      for (const bool replays : {false, true}) {
        Generator generator(5, device);
        nn::Linear layer(kFeatures, kClasses, {.device = device, .generator = &generator});
        nn::Adam adam(layer.parameters(), {.learning_rate = 0.05});
        const auto function = [&](const Tensor& x, const Tensor& y) {
          adam.zero_grad();
          const Tensor loss = cross_entropy(layer(x), y);
          loss.backward();
          adam.step();
          return loss;
        };
        CapturedStep step(device, function);
        for (int i = 0; i < 10; ++i) {
          const Tensor x = inputs(8, 3, device);
          const Tensor y = labels(8, 2, device);
          losses[replays].push_back(replays ? step(x, y) : function(x, y).detach());
        }
      }
      for (std::size_t i = 0; i < 10; ++i) check_identical(losses[1][i], losses[0][i]);
      CHECK(losses[1][9].item() < losses[1][0].item());
    });
  }
}

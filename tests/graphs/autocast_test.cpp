#include "autograd/autocast.h"

#include <doctest/doctest.h>

#include <cmath>
#include <optional>

#include "autograd/arithmetic.h"
#include "autograd/checkpoint.h"
#include "autograd/grad_mode.h"
#include "autograd/linalg.h"
#include "autograd/loss.h"
#include "autograd/math.h"
#include "autograd/reduce.h"
#include "graphs/capture_scope.h"
#include "graphs/captured_step.h"
#include "graphs/graphed_callable.h"
#include "nn/activations.h"
#include "nn/container.h"
#include "nn/linear.h"
#include "nn/optim/sgd.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_identical;
using testing::for_each_device;
using testing::random_tensor;

constexpr AutocastOptions kBrain{.dtype = DType::bfloat16};

enum class Scope { inside, around };

/// A small network whose step converts by Autocast.
struct Training {
  explicit Training(Device place, Scope where_scope)
      : device(place),
        scope(where_scope),
        generator(11, device),
        net(nn::Linear(6, 16, {.device = device, .generator = &generator}), nn::GELU(),
            nn::Linear(16, 4, {.device = device, .generator = &generator})),
        sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9}) {}

  Tensor step(const Tensor& x, const Tensor& target) {
    sgd.zero_grad();
    std::optional<Autocast> autocast;
    if (scope == Scope::inside) autocast.emplace(device.type, kBrain);
    // Twice, so that the second product finds the weights converted.
    const Tensor loss = mse_loss(net(x), target) + mse_loss(net(x * 0.5), target);
    autocast.reset();
    loss.backward();
    sgd.step();
    return loss;
  }

  Device device;
  Scope scope;
  Generator generator;
  nn::Sequential net;
  nn::SGD sgd;
};

void check_steps(Device device, Scope scope) {
  Training eager(device, scope);
  Training replayed(device, scope);
  CapturedStep step(device, [&](const Tensor& x, const Tensor& y) { return replayed.step(x, y); });
  std::optional<Autocast> autocast;
  if (scope == Scope::around) autocast.emplace(device.type, kBrain);
  for (std::uint64_t i = 0; i < 6; ++i) {
    const Tensor x = random_tensor({8, 6}, i, DType::float32, device);
    const Tensor y = random_tensor({8, 4}, i + 100, DType::float32, device);
    const Tensor want = eager.step(x, y).detach();
    check_identical(step(x, y), want);
    // Both also run eagerly in the same scope: the captured conversions are not theirs.
    const NoGradGuard no_grad;
    check_identical(replayed.net(x), eager.net(x));
  }
  const auto left = replayed.net.parameters();
  const auto right = eager.net.parameters();
  for (std::size_t i = 0; i < left.size(); ++i) {
    check_identical(left[i].detach(), right[i].detach());
    CHECK(left[i].dtype() == DType::float32);
  }
}

}  // namespace

TEST_SUITE("graphs/autocast") {
  TEST_CASE("a recorded step with Autocast in its function trains as the eager one") {
    for_each_device([](Device device) { check_steps(device, Scope::inside); });
  }

  TEST_CASE("a recorded step with Autocast around it trains as the eager one") {
    for_each_device([](Device device) { check_steps(device, Scope::around); });
  }

  TEST_CASE("E1: a replay converts the weight that it finds, whatever was converted before") {
    for_each_device([](Device device) {
      const Tensor weight = random_tensor({4, 6}, 1, DType::float32, device).set_requires_grad();
      const Tensor x = random_tensor({3, 6}, 2, DType::float32, device);
      const Autocast autocast(device.type, kBrain);
      (void)linear(x, weight, Tensor());  // converted outside
      Graph graph(device);
      Tensor y;
      capture(graph, [&] { y = linear(x, weight, Tensor()).detach(); });
      for (int i = 0; i < 3; ++i) {
        {
          const NoGradGuard no_grad;
          weight.add_(1.0);
        }
        graph.replay();
        check_identical(
            y, linear(x.to(DType::bfloat16), weight.detach().to(DType::bfloat16), Tensor()));
        check_identical(linear(x, weight, Tensor()).detach(), y);
      }
    });
  }

  TEST_CASE("E1: a graphed layer follows its weights, as eager Autocast does") {
    for_each_device([](Device device) {
      Generator generator(3, device);
      nn::Linear layer(6, 4, {.device = device, .generator = &generator});
      nn::SGD sgd(layer.parameters(), {.learning_rate = 1.0});
      const Tensor x = random_tensor({3, 6}, 2, DType::float32, device);
      const Autocast autocast(device.type, kBrain);
      (void)layer(x);  // converted outside
      const GraphedCallable graphed = make_graphed_callables(layer, x);
      for (int i = 0; i < 3; ++i) {
        sgd.zero_grad();
        const Tensor y = layer(x);
        sum(y).backward();
        const Tensor got = layer.weight.grad();
        layer.weight.set_grad(Tensor());
        const Tensor want = layer.forward(x);
        sum(want).backward();
        CHECK(y.dtype() == DType::bfloat16);
        check_identical(y.detach(), want.detach());
        check_identical(got, layer.weight.grad());
        sgd.step();
      }
      CHECK(graphed.stats().replays == 3);
      CHECK(graphed.stats().eager_calls == 0);
    });
  }

  TEST_CASE("a graphed callable in another Autocast mode runs eagerly, or has its own graph") {
    for_each_device([](Device device) {
      const Tensor w = random_tensor({6, 4}, 1, DType::float32, device).set_requires_grad();
      const Tensor x = random_tensor({3, 6}, 2, DType::float32, device);
      const auto f = [w](const Tensor& a) { return matmul(a, w); };
      for (const bool each : {false, true}) {
        GraphedCallable graphed = make_graphed_callables(f, x, {.graph_each_mode = each});
        CHECK(Tensor(graphed(x)).dtype() == DType::float32);
        for (int i = 0; i < 2; ++i) {
          const Autocast autocast(device.type, kBrain);
          check_identical(Tensor(graphed(x)).detach(), f(x).detach());
        }
        CHECK(Tensor(graphed(x)).dtype() == DType::float32);
        CHECK(graphed.stats().eager_calls == (each ? 0 : 2));
        CHECK(graphed.stats().captures == (each ? 2 : 1));
        CHECK(graphed.stats().replays == (each ? 4 : 2));
      }
    });
  }

  TEST_CASE("a recorded step called in another Autocast mode is recorded for it") {
    for_each_device([](Device device) {
      const Tensor w = random_tensor({6, 4}, 1, DType::float32, device);
      const Tensor x = random_tensor({3, 6}, 2, DType::float32, device);
      CapturedStep step(device, [&](const Tensor& a) { return matmul(a, w); });
      CHECK(step(x).dtype() == DType::float32);
      {
        const Autocast autocast(device.type, kBrain);
        CHECK(step(x).dtype() == DType::bfloat16);
      }
      CHECK(step(x).dtype() == DType::float32);
      CHECK(step.stats().captures == 2);
    });
  }

  TEST_CASE("a checkpoint recomputes in the mode of its forward, whatever was converted before") {
    for_each_device([](Device device) {
      const Tensor w = random_tensor({6, 4}, 1, DType::float32, device).set_requires_grad();
      const Tensor x = random_tensor({3, 6}, 2, DType::float32, device).set_requires_grad();
      const auto f = [w](const Tensor& a) { return matmul(a, w); };
      std::vector<std::vector<Tensor>> grads;
      for (const bool saving : {false, true}) {
        Tensor y;
        {
          const Autocast autocast(device.type, kBrain);
          (void)f(x);
          y = saving ? checkpoint(std::function<Tensor(const Tensor&)>(f), x) : f(x);
        }
        CHECK(y.dtype() == DType::bfloat16);
        sum(y).backward();
        grads.push_back({x.grad(), w.grad()});
        x.set_grad(Tensor());
        w.set_grad(Tensor());
      }
      check_identical(grads[1][0], grads[0][0]);
      check_identical(grads[1][1], grads[0][1]);
    });
  }

  TEST_CASE("E1: a conversion recorded in a capture is not used after it") {
    for_each_device([](Device device) {
      const Tensor weight = random_tensor({4, 6}, 1, DType::float32, device).set_requires_grad();
      const Tensor x = random_tensor({3, 6}, 2, DType::float32, device);
      const Tensor want =
          linear(x.to(DType::bfloat16), weight.detach().to(DType::bfloat16), Tensor());
      const Autocast autocast(device.type, kBrain);
      Graph graph(device);
      Tensor y;
      capture(graph, [&] { y = linear(x, weight, Tensor()).detach(); });
      // Nothing of the capture has run.
      check_identical(linear(x, weight, Tensor()).detach(), want);
      Graph second(device);
      Tensor z;
      capture(second, [&] { z = linear(x, weight, Tensor()).detach(); });
      second.replay();
      check_identical(z, want);
    });
  }

  TEST_CASE("a weight written by a replay is converted anew") {
    for_each_device([](Device device) {
      const Tensor weight = random_tensor({4, 6}, 1, DType::float32, device).set_requires_grad();
      const Tensor x = random_tensor({3, 6}, 2, DType::float32, device);
      Graph graph(device);
      capture(graph, [&] {
        const NoGradGuard no_grad;
        weight.add_(1.0);
      });
      const Autocast autocast(device.type, kBrain);
      (void)linear(x, weight, Tensor());
      graph.replay();
      const Tensor got = linear(x, weight, Tensor());
      const Tensor want =
          linear(x.to(DType::bfloat16), weight.detach().to(DType::bfloat16), Tensor());
      check_identical(got.detach(), want);
    });
  }

  TEST_CASE("a capture that fails leaves modes and cache as they were") {
    for_each_device([](Device device) {
      const Tensor weight = random_tensor({4, 6}, 1, DType::float32, device).set_requires_grad();
      const Tensor x = random_tensor({3, 6}, 2, DType::float32, device);
      const Autocast outer(device.type, kBrain);
      const Tensor want = linear(x, weight, Tensor()).detach();
      Graph graph(device);
      const auto fails = [&] {
        capture(graph, [&] {
          const Autocast inner(device.type, {.dtype = DType::float16});
          (void)linear(x, weight, Tensor()).item();
        });
      };
      CHECK_THROWS(fails());
      CHECK(autocast_dtype(device.type) == DType::bfloat16);
      check_identical(linear(x, weight, Tensor()).detach(), want);
    });
  }

  TEST_CASE("an MLP in bfloat16 reaches the loss of float32 within 5 %") {
    for_each_device([](Device device) {
      const Tensor x = random_tensor({256, 8}, 1, DType::float32, device);
      const Tensor mix = random_tensor({8, 3}, 2, DType::float32, device);
      const Tensor target = tanh(matmul(x, mix) * 2.0).detach();
      const auto trained = [&](bool enabled) {
        const Generator generator(3, device);
        nn::Sequential net(nn::Linear(8, 32, {.device = device, .generator = &generator}),
                           nn::ReLU(),
                           nn::Linear(32, 3, {.device = device, .generator = &generator}));
        nn::SGD sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
        CapturedStep step(device, [&](const Tensor& inputs, const Tensor& wanted) {
          sgd.zero_grad();
          const Autocast autocast(device.type, {.dtype = DType::bfloat16, .enabled = enabled});
          const Tensor loss = mse_loss(net(inputs), wanted);
          loss.backward();
          sgd.step();
          return loss;
        });
        const double first = step(x, target).item();
        double last = 0.0;
        for (int i = 0; i < 200; ++i) last = step(x, target).item();
        CHECK(last < 0.2 * first);
        return last;
      };
      const double full = trained(false);
      const double mixed = trained(true);
      CAPTURE(full);
      CAPTURE(mixed);
      CHECK(mixed != full);
      CHECK(std::abs(mixed - full) < 0.05 * full);
    });
  }
}

}  // namespace capstan

#include "nn/optim/grad_scaler.h"

#include <doctest/doctest.h>

#include <limits>

#include "autograd/arithmetic.h"
#include "autograd/reduce.h"
#include "framework/core/counters.h"
#include "framework/tensor/factory.h"
#include "graphs/capture_scope.h"
#include "graphs/captured_step.h"
#include "nn/optim/adam.h"
#include "nn/optim/sgd.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::check_identical;
using testing::for_each_device;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor make_parameter(const std::vector<double>& gradient, Device device = Device::cpu()) {
  const Shape shape{static_cast<std::int64_t>(gradient.size())};
  const Tensor parameter = ones(shape, {.device = device}).set_requires_grad();
  parameter.set_grad(Tensor::from_vector(shape, gradient).to(DType::float32).to(device));
  return parameter;
}

}  // namespace

TEST_SUITE("nn/optim/grad_scaler") {
  TEST_CASE("gradients are unscaled once, and the scale grows after good steps") {
    for_each_device([](Device device) {
      const Tensor p = ones({2}, {.device = device}).set_requires_grad();
      nn::SGD sgd({p}, {.learning_rate = 0.5});
      nn::GradScaler scaler(device, {.init_scale = 8.0, .growth_interval = 2});
      for (const double want : {8.0, 16.0, 16.0, 32.0}) {
        sgd.zero_grad();
        scaler.scale(sum(p)).backward();
        scaler.unscale_(sgd);
        check_close(p.grad(), {1.0, 1.0}, 0.0);
        scaler.step(sgd);
        scaler.update();
        check_close(scaler.scale_tensor(), {want}, 0.0);
      }
      check_close(p.detach(), {-1.0, -1.0}, 0.0);
    });
  }

  TEST_CASE("inf, -inf and NaN anywhere skip the step of that optimiser alone, and back off") {
    for_each_device([](Device device) {
      for (const double bad : {kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
        const Tensor p = make_parameter({8.0, 8.0}, device);
        const Tensor q = make_parameter({8.0, bad, 8.0}, device);
        const Tensor r = make_parameter({8.0}, device);
        nn::Adam adam({p, q}, {.learning_rate = 0.5});
        nn::SGD sgd({r}, {.learning_rate = 0.5});
        nn::GradScaler scaler(device, {.init_scale = 8.0, .growth_interval = 1});
        scaler.step(adam);
        scaler.step(sgd);
        scaler.update();
        check_close(p.detach(), {1.0, 1.0}, 0.0);
        check_close(q.detach(), {1.0, 1.0, 1.0}, 0.0);
        check_close(r.detach(), {0.5}, 0.0);
        CHECK(adam.step_count() == 0);
        CHECK(sgd.step_count() == 1);
        check_close(scaler.scale_tensor(), {4.0}, 0.0);
        check_close(scaler.growth_tracker(), {0.0}, 0.0);
        q.set_grad(ones({3}, {.device = device}));
        scaler.step(adam);  // the finding was cleared
        CHECK(adam.step_count() == 1);
      }
    });
  }

  TEST_CASE("large gradients of both signs are not taken for inf") {
    const Tensor p = make_parameter({3e38, -3e38});
    nn::SGD sgd({p}, {.learning_rate = 0.0});
    nn::GradScaler scaler(Device::cpu(), {.init_scale = 4.0});
    scaler.step(sgd);
    CHECK(sgd.step_count() == 1);
    check_close(p.grad(), {0.75e38, -0.75e38}, 1e-6);
  }

  TEST_CASE("the scale does not grow beyond float32") {
    const Tensor p = make_parameter({1.0});
    nn::SGD sgd({p}, {.learning_rate = 0.0});
    nn::GradScaler scaler(Device::cpu(), {.init_scale = 2e38, .growth_interval = 1});
    scaler.step(sgd);
    scaler.update();
    check_close(scaler.scale_tensor(), {2e38}, 1e-6);
    check_close(scaler.growth_tracker(), {0.0}, 0.0);
  }

  TEST_CASE("B4: an eager update of the scale reaches the replay, in the same tensor") {
    for_each_device([](Device device) {
      const Tensor p = ones({2}, {.device = device}).set_requires_grad();
      const Tensor x = ones({2}, {.device = device});
      nn::SGD sgd({p}, {.learning_rate = 0.5});
      nn::GradScaler scaler(device, {.init_scale = 8.0, .growth_interval = 1});
      const void* const address = scaler.scale_tensor().raw_data();
      Graph graph(device);
      capture(graph, [&] {
        sgd.zero_grad();
        scaler.scale(sum(p * x)).backward();
      });
      graph.replay();
      check_close(p.grad(), {8.0, 8.0}, 0.0);
      scaler.step(sgd);
      scaler.update();
      graph.replay();
      check_close(p.grad(), {16.0, 16.0}, 0.0);
      CHECK(scaler.scale_tensor().raw_data() == address);

      const Tensor before = p.detach().clone();
      x.fill_(kInfinity);
      graph.replay();
      scaler.step(sgd);
      scaler.update();
      check_identical(p.detach(), before);
      x.fill_(1.0);
      graph.replay();
      check_close(p.grad(), {8.0, 8.0}, 0.0);
      CHECK(scaler.scale_tensor().raw_data() == address);
    });
  }

  TEST_CASE("B4: a whole step with scaling, replayed, equals the eager one, skips included") {
    for_each_device([](Device device) {
      const auto run = [device](bool replayed) {
        const Tensor p = full({3}, 0.5, {.device = device}).set_requires_grad();
        nn::Adam adam({p}, {.learning_rate = 0.1});
        nn::GradScaler scaler(device, {.init_scale = 8.0, .growth_interval = 2});
        const auto body = [&](const Tensor& x) {
          adam.zero_grad();
          const Tensor loss = sum(p * p * x);
          scaler.scale(loss).backward();
          scaler.step(adam);
          scaler.update();
          return loss;
        };
        CapturedStep step(device, body);
        for (int i = 0; i < 12; ++i) {
          const Tensor x = full({3}, i % 5 == 3 ? kInfinity : 1.0 + i, {.device = device});
          (void)(replayed ? step(x) : body(x));
        }
        CHECK(adam.step_count() == 10);
        if (replayed) CHECK(step.stats().captures == 1);
        return std::pair{p.detach(), scaler.scale_tensor()};
      };
      const auto [p, scale] = run(true);
      const auto [want_p, want_scale] = run(false);
      check_identical(p, want_p);
      check_identical(scale, want_scale);
      check_close(scale, {32.0}, 0.0);  // 8, 16, back to 8, 16, 32, back to 16, 32
    });
  }

  TEST_CASE("state goes out and comes back") {
    nn::GradScaler scaler(Device::cpu(), {.init_scale = 8.0});
    nn::GradScaler other(Device::cpu());
    other.load_state_dict(scaler.state_dict());
    check_close(other.scale_tensor(), {8.0}, 0.0);
    other.set_scale(2.0);
    check_close(scaler.scale_tensor(), {8.0}, 0.0);
  }

  TEST_CASE("switched off, everything passes as it is") {
    const Tensor p = make_parameter({kInfinity});
    nn::SGD sgd({p}, {.learning_rate = 0.0});
    nn::GradScaler scaler(Device::cpu(), {.enabled = false});
    CHECK(scaler.scale(p).is_same(p));
    scaler.unscale_(sgd);
    scaler.step(sgd);
    scaler.update();
    CHECK(sgd.step_count() == 1);
  }

  TEST_CASE("wrong order and bad options are refused") {
    const Tensor p = make_parameter({1.0});
    nn::SGD sgd({p}, {.learning_rate = 0.0});
    nn::GradScaler scaler(Device::cpu());
    using doctest::Contains;
    CHECK_THROWS_WITH_AS(scaler.update(), Contains("GradScaler: update needs a step"), StateError);
    scaler.unscale_(sgd);
    CHECK_THROWS_WITH_AS(scaler.unscale_(sgd), Contains("unscale_ was called twice"), StateError);
    scaler.step(sgd);
    CHECK_THROWS_WITH_AS(scaler.unscale_(sgd), Contains("unscale_ was called after step"),
                         StateError);
    CHECK_THROWS_WITH_AS(scaler.step(sgd), Contains("step was called twice"), StateError);
    CHECK_THROWS_AS(scaler.set_scale(0.0), ValueError);
    CHECK_THROWS_WITH_AS(nn::GradScaler(Device::cpu(), {.init_scale = 0.0}),
                         Contains("GradScaler: init_scale must be positive, got 0"), ValueError);
    CHECK_THROWS_AS(nn::GradScaler(Device::cpu(), {.growth_factor = 0.5}), ValueError);
    CHECK_THROWS_AS(nn::GradScaler(Device::cpu(), {.backoff_factor = 1.0}), ValueError);
    CHECK_THROWS_AS(nn::GradScaler(Device::cpu(), {.growth_interval = 0}), ValueError);

    const Tensor half = ones({1}, {.dtype = DType::float16}).set_requires_grad();
    half.set_grad(ones({1}, {.dtype = DType::float16}));
    nn::SGD narrow({half}, {.learning_rate = 0.0});
    CHECK_THROWS_WITH_AS(scaler.unscale_(narrow), Contains("is float16, which cannot hold it"),
                         DTypeError);
    check_close(half.grad(), {1.0}, 0.0);
  }
}

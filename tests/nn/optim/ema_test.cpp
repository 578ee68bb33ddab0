#include "nn/optim/ema.h"

#include <doctest/doctest.h>

#include "framework/tensor/factory.h"
#include "graphs/capture_scope.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::check_identical;
using testing::for_each_device;

TEST_SUITE("nn/optim/ema") {
  TEST_CASE("averages move by 1 - decay towards the parameters, values by hand") {
    for_each_device([](Device device) {
      const Tensor p = full({2}, 4.0, {.device = device}).set_requires_grad();
      const Tensor q = full({1}, 1.0, {.dtype = DType::float64, .device = device});
      nn::EMA ema({p, q}, 0.75);
      p.detach().fill_(8.0);
      ema.update();
      check_close(ema.averages()[0], {5.0, 5.0}, 0.0);
      check_close(ema.averages()[1], {1.0}, 0.0);
      ema.set_decay(0.0);
      ema.update();
      check_close(ema.averages()[0], {8.0, 8.0}, 0.0);
      p.detach().fill_(0.0);
      ema.copy_to_parameters();
      check_close(p.detach(), {8.0, 8.0}, 0.0);
      CHECK(p.requires_grad());
    });
  }

  TEST_CASE("halves are averaged in float32, where small moves add up") {
    for_each_device([](Device device) {
      const Tensor p = full({1}, 1.0, {.dtype = DType::bfloat16, .device = device});
      nn::EMA ema({p}, 0.999);
      p.fill_(2.0);
      for (int i = 0; i < 3; ++i) ema.update();
      CHECK(ema.averages()[0].dtype() == DType::float32);
      check_close(ema.averages()[0], {2.0 - 0.999 * 0.999 * 0.999}, 1e-6);
      ema.copy_to_parameters();
      CHECK(p.dtype() == DType::bfloat16);
    });
  }

  TEST_CASE("a captured update follows the parameters and the decay") {
    for_each_device([](Device device) {
      const Tensor p = full({1}, 4.0, {.device = device});
      nn::EMA ema({p}, 0.75);
      Graph graph(device);
      capture(graph, [&] { ema.update(); });
      p.fill_(8.0);
      graph.replay();
      check_close(ema.averages()[0], {5.0}, 0.0);
      ema.set_decay(0.5);
      graph.replay();
      check_close(ema.averages()[0], {6.5}, 0.0);
    });
  }

  TEST_CASE("state goes out and comes back") {
    const Tensor p = full({1}, 4.0);
    nn::EMA ema({p}, 0.75);
    const Tensor q = full({1}, 9.0);
    nn::EMA other({q}, 0.5);
    other.load_state_dict(ema.state_dict());
    CHECK(other.decay() == 0.75);
    check_close(other.averages()[0], {4.0}, 0.0);
    other.update();
    check_close(other.averages()[0], {5.25}, 0.0);
    check_close(ema.averages()[0], {4.0}, 0.0);
  }

  TEST_CASE("bad decays and parameters are refused") {
    const Tensor p = full({1}, 4.0);
    CHECK_THROWS_WITH_AS(nn::EMA({p}, 1.5), doctest::Contains("EMA: decay must be in [0, 1], got"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::EMA({}), doctest::Contains("EMA: there are no parameters"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::EMA({zeros({1}, {.dtype = DType::int64})}),
                         doctest::Contains("EMA: parameter 0 (int64[1] on cpu) is not floating"),
                         DTypeError);
    nn::EMA ema({p});
    CHECK_THROWS_AS(ema.set_decay(-0.5), ValueError);
    CHECK(ema.decay() == 0.999);
  }
}

#include "nn/norm.h"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/arithmetic.h"
#include "autograd/reduce.h"
#include "graphs/capture_scope.h"
#include "graphs/graph.h"
#include "graphs/graphed_callable.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;

namespace {

// Mean 10, variance 4.
Tensor batch(Device device) { return Tensor::from_vector<float>({4, 1}, {8, 12, 8, 12}, device); }

}  // namespace

TEST_SUITE("graphs/norm") {
  TEST_CASE("C1: a graphed BatchNorm has moved its statistics once after one call") {
    for_each_device([](Device device) {
      nn::BatchNorm1d eager(1, {.device = device});
      nn::BatchNorm1d graphed(1, {.device = device});
      const GraphedCallable call =
          make_graphed_callables(graphed, batch(device).set_requires_grad(), {.warmup = 3});
      check_close(graphed.running_mean, {0.0}, 0);
      CHECK(graphed.num_batches_tracked.item() == 0);
      const Tensor x = batch(device).set_requires_grad();
      const Tensor y = batch(device).set_requires_grad();
      sum(graphed(x) * batch(device)).backward();
      sum(eager(y) * batch(device)).backward();
      check_close(graphed.running_mean, {1}, tolerance_for(DType::float32, device));
      CHECK(graphed.num_batches_tracked.item() == 1);
      check_identical(graphed.running_mean, eager.running_mean);
      check_identical(graphed.running_var, eager.running_var);
      check_identical(graphed.weight.grad(), eager.weight.grad());
      check_identical(x.grad(), y.grad());
    });
  }

  TEST_CASE("C2: replays and an eager call count in the same place") {
    for_each_device([](Device device) {
      nn::BatchNorm1d norm(1, {.device = device});
      const void* const address = norm.num_batches_tracked.raw_data();
      const Tensor x = batch(device);
      Tensor y;
      Graph graph(device);
      capture(graph, [&] { y = norm(x); });
      CHECK(norm.num_batches_tracked.item() == 0);
      for (int i = 0; i < 5; ++i) graph.replay();
      CHECK(norm.num_batches_tracked.item() == 5);
      CHECK(norm.num_batches_tracked.raw_data() == address);
      (void)norm(x);
      CHECK(norm.num_batches_tracked.item() == 6);
      check_close(norm.running_mean, {10.0 * (1.0 - std::pow(0.9, 6))},
                  4 * tolerance_for(DType::float32, device));
    });
  }

  TEST_CASE("an average over all batches goes on from replay to replay") {
    for_each_device([](Device device) {
      nn::BatchNorm1d norm(1, {.momentum = std::nullopt, .device = device});
      const Tensor x = batch(device);
      Graph graph(device);
      capture(graph, [&] { (void)norm(x); });
      for (const double add : {0.0, 10.0, 20.0}) {
        x.copy_(batch(device));
        x.add_(add);
        graph.replay();
      }
      check_close(norm.running_mean, {20}, tolerance_for(DType::float32, device));
    });
  }
}

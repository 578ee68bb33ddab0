#include "autograd/checkpoint.h"

#include <optional>
#include <vector>

#include "autograd/arithmetic.h"
#include "autograd/engine.h"
#include "autograd/layout.h"
#include "autograd/math.h"
#include "autograd/reduce.h"
#include "graphs/capture_scope.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;
using doctest::Contains;

namespace {

Tensor drop(const Tensor& x) { return tanh(dropout(x, 0.5)); }

}  // namespace

TEST_SUITE("graphs/checkpoint") {
  TEST_CASE("D3, checkpoint_preserve_rng_state: a captured step draws the same numbers twice") {
    for_each_device([](Device device) {
      const Generator generator = default_generator(device);
      const Tensor x = full({1000}, 2.0, {.device = device}).set_requires_grad();
      const Tensor result = zeros({1000}, {.device = device});
      const Tensor gradient = zeros({1000}, {.device = device});
      const auto step = [&] {
        const Tensor y = dropout(checkpoint(drop, x), 0.25);
        result.copy_(y.detach());
        gradient.copy_(grad({y.sum()}, {x})[0]);
      };
      Graph graph(device);
      capture(graph, step);
      for (const std::uint64_t seed : {42, 7, 1234}) {
        manual_seed(seed);
        step();
        step();
        const Tensor want = gradient.clone();
        const Tensor want_result = result.clone();
        const GeneratorState after = generator.state();
        manual_seed(seed);
        graph.replay();
        CHECK_FALSE(identical(gradient, want));
        graph.replay();
        check_identical(gradient, want);
        check_identical(result, want_result);
        CHECK(generator.state() == after);
      }
    });
  }

  TEST_CASE("D3: forward and backward in two captures draw the same numbers") {
    for_each_device([](Device device) {
      const Generator generator = default_generator(device);
      const Tensor x = full({1000}, 2.0, {.device = device}).set_requires_grad();
      const Tensor gradient = zeros({1000}, {.device = device});
      std::optional<Graph> forward(std::in_place, device);
      Tensor y;
      capture(*forward, [&] { y = checkpoint(drop, x); });
      Graph backward(device);
      capture(backward, [&] {
        gradient.copy_(grad({y.sum()}, {x})[0]);
        gradient.add_(dropout(zeros({1000}, {.device = device}), 0.5));
      });
      const Tensor result = y.detach();
      y = Tensor();
      for (const std::uint64_t seed : {42, 7, 1234}) {
        manual_seed(seed);
        const Tensor want_y = checkpoint(drop, x);
        const Tensor want = grad({want_y.sum()}, {x})[0];
        (void)dropout(x, 0.5);
        const GeneratorState after = generator.state();
        manual_seed(seed);
        forward->replay();
        backward.replay();
        check_identical(result, want_y.detach());
        check_identical(gradient, want);
        CHECK(generator.state() == after);
      }
      forward.reset();
      CHECK_NOTHROW(backward.replay());
    });
  }

  TEST_CASE("a forward outside of the capture cannot be run again inside, which says so") {
    const Tensor x = full({10}, 2.0).set_requires_grad();
    const Tensor y = checkpoint(drop, x);
    Graph graph;
    capture(graph, [&] {
      CHECK_THROWS_WITH_AS((void)grad({y.sum()}, {x}),
                           Contains("a state saved outside of the capture"), CaptureError);
      x.detach().add_(0.0);
    });
  }

  TEST_CASE("D4: the mask of a captured backward is that of its forward, in each replay") {
    for_each_device([](Device device) {
      const Tensor x = ones({1024}, {.device = device}).set_requires_grad();
      const Tensor y = zeros({1024}, {.device = device});
      const Tensor dx = zeros({1024}, {.device = device});
      Graph graph(device);
      capture(graph, [&] {
        const Tensor out = dropout(x, 0.5);
        y.copy_(out.detach());
        dx.copy_(grad({(out * 3.0).sum()}, {x})[0]);
      });
      Tensor last = zeros({1024}, {.device = device});
      for (int i = 0; i < 5; ++i) {
        graph.replay();
        check_identical(dx, y * 3.0);
        CHECK_FALSE(identical(y, last));
        last = y.clone();
      }
    });
  }
}

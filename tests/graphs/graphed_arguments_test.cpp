#include "graphs/graphed_callable.h"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "autograd/arithmetic.h"
#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/layout.h"
#include "autograd/linalg.h"
#include "autograd/loss.h"
#include "autograd/math.h"
#include "autograd/reduce.h"
#include "framework/core/counters.h"
#include "framework/random/generator.h"
#include "graphs/capture_scope.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;
using doctest::Contains;

namespace {

Tensor leaf(const Shape& shape, std::uint64_t seed, Device device) {
  return random_tensor(shape, seed, DType::float32, device).set_requires_grad();
}

}  // namespace

TEST_SUITE("graphs/graphed_arguments") {
  TEST_CASE("lists, maps, empty places, integer and constant results keep their structure") {
    for_each_device([](Device device) {
      const Graphable::Function f = [](const TensorTree& x) {
        const Tensor sum = Tensor(x["pair"][0]) + Tensor(x["pair"][1]);
        return TensorTree::map({{"sum", sum},
                                {"rest", TensorTree::list({argmax(sum, 0), TensorTree(),
                                                           Tensor(x["mask"]).detach()})}});
      };
      const auto arguments = [&](std::uint64_t seed) {
        return TensorTree::map(
            {{"mask", random_tensor({2}, seed, DType::float32, device)},
             {"none", TensorTree()},
             {"pair", TensorTree({leaf({3}, seed + 1, device), leaf({3}, seed + 2, device)})}});
      };
      GraphedCallable graphed = make_graphed_callables(f, arguments(1));
      const TensorTree given = arguments(7);
      const TensorTree got = graphed(given);
      const TensorTree want = f(given);
      CHECK(want.structural_difference(got).empty());
      check_identical(Tensor(got["sum"]).detach(), Tensor(want["sum"]).detach());
      check_identical(got["rest"][0], want["rest"][0]);
      CHECK(Tensor(got["rest"][0]).dtype() == DType::int64);
      CHECK(got["rest"][1].is_nothing());
      check_identical(got["rest"][2], want["rest"][2]);
      CHECK_FALSE(Tensor(got["rest"][2]).requires_grad());
      Tensor(got["sum"]).sum().backward();
      check_close(Tensor(given["pair"][0]).grad(), {1, 1, 1}, 0.0);
    });
  }

  TEST_CASE("A2: a callable that writes its argument is refused, naming it") {
    for_each_device([](Device device) {
      const auto f = [](const Tensor& x) {
        x.add_(1.0);
        return x * 2.0;
      };
      const Tensor sample = zeros({4}, {.device = device});
      CHECK_THROWS_WITH_AS((void)make_graphed_callables(f, sample, {.name = "f"}),
                           Contains("argument"), CaptureError);
      check_close(sample, {0, 0, 0, 0}, 0.0);
      CHECK_THROWS_AS((void)make_graphed_callables(f, leaf({4}, 1, device)), Error);
    });
  }

  TEST_CASE("A4: a sample with a history is refused before anything is recorded") {
    for_each_device([](Device device) {
      const Tensor r1 = random_tensor({4}, 1, DType::float32, device);
      const Tensor r2 = leaf({4}, 2, device) * 1.0;
      const Generator generator = default_generator(device);
      const GeneratorState before = generator.state();
      const Stream stream = current_stream(device);
      const std::int64_t dispatches = counters().dispatches;
      CHECK_THROWS_WITH_AS(
          (void)make_graphed_callables([](const Tensor& a, const Tensor& b) { return a + b; },
                                       TensorTree({r1, r2}), {.name = "sum"}),
          Contains("sum: the sample for argument [1] (float32[4]"), GradError);
      CHECK(counters().dispatches == dispatches);
      CHECK(current_stream(device) == stream);
      CHECK(generator.state() == before);
    });
  }

  TEST_CASE("arguments may lie in the graph's own inputs, at the same place or another") {
    for_each_device([](Device device) {
      GraphedCallable f = make_graphed_callables(
          [](const Tensor& a, const Tensor& b) { return a - b; },
          TensorTree({zeros({3}, {.device = device}), zeros({3}, {.device = device})}));
      const TensorTree own = f.static_inputs();
      Tensor(own[0]).copy_(Tensor::from_vector({3}, std::vector<float>{1, 2, 3}, device));
      Tensor(own[1]).copy_(Tensor::from_vector({3}, std::vector<float>{10, 20, 30}, device));
      check_close(f(own[0], own[1]), {-9, -18, -27}, 0.0);
      CHECK(f.stats().input_copies == 0);
      check_close(f(own[1], own[0]), {9, 18, 27}, 0.0);
    });
  }

  TEST_CASE(
      "L1, R1, R2: arguments that differ from the samples are refused, naming path and both") {
    for_each_device([](Device device) {
      const Graphable::Function f = [](const TensorTree& x) {
        return TensorTree(Tensor(x[0]) + Tensor(x[1]["bias"]));
      };
      const auto arguments = [](const Tensor& x, const Tensor& bias) {
        return TensorTree::list({x, TensorTree::map({{"bias", bias}})});
      };
      const Tensor bias = ones({3}, {.device = device});
      GraphedCallable g = make_graphed_callables(
          f, arguments(ones({4, 3}, {.device = device}), bias), {.name = "g"});
      const auto with = [&](const Tensor& x) { (void)g(arguments(x, bias)); };
      CHECK_THROWS_WITH_AS(
          with(ones({8, 3}, {.device = device})),
          Contains("g: argument [0] was graphed as float32[4, 3], got float32[8, 3]"), ShapeError);
      CHECK_THROWS_AS(with(ones({1, 3}, {.device = device})), ShapeError);
      CHECK_THROWS_AS(with(ones({3}, {.device = device})), ShapeError);
      CHECK_THROWS_WITH_AS(with(ones({4, 3}, {.dtype = DType::float64, .device = device})),
                           Contains("got float64[4, 3]"), DTypeError);
      CHECK_THROWS_WITH_AS(with(leaf({4, 3}, 1, device)), Contains("its gradient would be lost"),
                           GradError);
      CHECK_THROWS_WITH_AS(
          (void)g(arguments(ones({4, 3}, {.device = device}), ones({4}, {.device = device}))),
          Contains("argument [1][\"bias\"] was graphed as float32[3]"), ShapeError);
      CHECK_THROWS_WITH_AS((void)g(bias), Contains("expected a list of 2, got a tensor"),
                           ValueError);
      CHECK_THROWS_WITH_AS((void)g(TensorTree::list({bias, TensorTree::map({{"scale", bias}})})),
                           Contains("g: argument [1]: expected a map of"), ValueError);
      CHECK(g.stats().replays == 0);

      const Tensor wide = random_tensor({3, 4}, 5, DType::float32, device);
      check_identical(g(arguments(wide.transpose(0, 1), bias)),
                      f(arguments(wide.transpose(0, 1), bias)).tensor());
    });
  }

  TEST_CASE("an argument of another device is refused") {
    if (!needs_gpu()) return;
    GraphedCallable g = make_graphed_callables([](const Tensor& x) { return x * 2.0; },
                                               ones({2}, {.device = Device::gpu()}));
    CHECK_THROWS_WITH_AS((void)g(ones({2})), Contains("was graphed on gpu:0"), DeviceError);
  }

  TEST_CASE("an input without influence is refused unless allowed") {
    for_each_device([](Device device) {
      const auto f = [](const Tensor& a, const Tensor&) { return a * 2.0; };
      const TensorTree sample({leaf({2}, 1, device), leaf({2}, 2, device)});
      CHECK_THROWS_WITH_AS((void)make_graphed_callables(f, sample),
                           Contains("argument [1] requires a gradient and has no influence"),
                           GradError);
      GraphedCallable g = make_graphed_callables(f, sample, {.allow_unused_input = true});
      const Tensor a = leaf({2}, 3, device);
      const Tensor b = leaf({2}, 4, device);
      Tensor(g(a, b)).sum().backward();
      check_close(a.grad(), {2, 2}, 0.0);
      CHECK_FALSE(b.grad().defined());
    });
  }

  TEST_CASE("results that depend on a history from before are refused") {
    for_each_device([](Device device) {
      const Tensor w = leaf({2}, 1, device) * 2.0;
      CHECK_THROWS_AS((void)make_graphed_callables([w](const Tensor& x) { return x * w; },
                                                   leaf({2}, 2, device)),
                      GradError);
    });
  }

  TEST_CASE("a callable gets as many tensors as it takes") {
    const Tensor x = ones({2});
    const auto one = [](const Tensor& a) { return a * 2.0; };
    const auto two = [](const Tensor& a, const Tensor& b) { return a + b; };
    CHECK_THROWS_WITH_AS((void)make_graphed_callables(two, x),
                         Contains("takes 2 tensors, the sample is a tensor"), ValueError);
    CHECK_THROWS_WITH_AS((void)make_graphed_callables(two, TensorTree({x, x, x})),
                         Contains("takes 2 tensors, the sample is a list of 3"), ValueError);
    CHECK_THROWS_WITH_AS((void)make_graphed_callables(one, TensorTree({x, x})),
                         Contains("expected a tensor, got a list of 2"), StateError);
  }

  TEST_CASE("bad options and missing arguments are refused") {
    const auto f = [](const Tensor& x) { return x * 2.0; };
    CHECK_THROWS_AS((void)make_graphed_callables(f, ones({2}), {.warmup = -1}), ValueError);
    CHECK_THROWS_AS((void)make_graphed_callables(f, ones({2}), {.slots = 0}), ValueError);
    CHECK_THROWS_AS((void)make_graphed_callables(std::vector<Graphable>{}), ValueError);
    CHECK_THROWS_AS((void)make_graphed_callables(Graphable::Function(), ones({2})), ValueError);
    CHECK_THROWS_AS((void)make_graphed_callables([] { return ones({2}); }, TensorTree()),
                    ValueError);
  }
}

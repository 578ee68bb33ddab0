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

Tensor filled(const Shape& shape, double value, Device device) {
  return full(shape, value, {.device = device});
}

Tensor leaf(const Shape& shape, std::uint64_t seed, Device device) {
  return random_tensor(shape, seed, DType::float32, device).set_requires_grad();
}

}  // namespace

TEST_SUITE("graphs/graphed_callable") {
  TEST_CASE("a function replays: results and gradients of arguments equal the eager ones") {
    for_each_device([](Device device) {
      int calls = 0;
      const auto f = [&calls](const Tensor& a, const Tensor& b) {
        ++calls;
        return tanh(a * b) + a;
      };
      GraphedCallable graphed = make_graphed_callables(
          f, TensorTree({leaf({3, 4}, 1, device), leaf({4}, 2, device)}), {.name = "f"});
      CHECK(calls == 4);  // three to warm up, one to record
      for (std::uint64_t i = 0; i < 3; ++i) {
        const Tensor a = leaf({3, 4}, 10 + i, device);
        const Tensor b = leaf({4}, 20 + i, device);
        const Tensor got = graphed(a, b);
        CHECK(got.requires_grad());
        CHECK_FALSE(got.is_leaf());
        (got * got).sum().backward();
        const Tensor a2 = a.detach().clone().set_requires_grad();
        const Tensor b2 = b.detach().clone().set_requires_grad();
        const Tensor want = f(a2, b2);
        (want * want).sum().backward();
        check_identical(got.detach(), want.detach());
        check_identical(a.grad(), a2.grad());
        check_identical(b.grad(), b2.grad());
      }
      CHECK(calls == 7);
      CHECK(graphed.name() == "f");
      CHECK(graphed.stats().replays == 3);
      CHECK(graphed.stats().backwards == 3);
      CHECK(graphed.stats().captures == 1);
      CHECK(graphed.stats().input_copies == 6);
      CHECK(graphed.forward_graph().replay_count() == 3);
      REQUIRE(graphed.backward_graph() != nullptr);
      CHECK(graphed.backward_graph()->pool() == graphed.pool());
    });
  }

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

  TEST_CASE("a callable with nothing to differentiate has no backward graph") {
    for_each_device([](Device device) {
      GraphedCallable graphed = make_graphed_callables([](const Tensor& x) { return x * 2.0; },
                                                       ones({2}, {.device = device}));
      CHECK(graphed.backward_graph() == nullptr);
      const Tensor y = graphed(filled({2}, 3.0, device));
      check_close(y, {6, 6}, 0.0);
      CHECK_FALSE(y.requires_grad());
    });
  }

  TEST_CASE("without gradients the same graph serves, and takes what eager calls take") {
    for_each_device([](Device device) {
      GraphedCallable graphed =
          make_graphed_callables([](const Tensor& x) { return x * 2.0; }, leaf({2}, 1, device));
      const NoGradGuard no_grad;
      const Tensor y = graphed(filled({2}, 3.0, device));
      check_close(y, {6, 6}, 0.0);
      CHECK_FALSE(y.requires_grad());
      CHECK(graphed.stats().backwards == 0);
    });
  }

  TEST_CASE("gradients reach leaves that the function refers to, and pass on through results") {
    for_each_device([](Device device) {
      const Tensor w = leaf({4, 2}, 3, device);
      GraphedCallable graphed = make_graphed_callables(
          [w](const Tensor& x) { return matmul(x, w); }, leaf({3, 4}, 1, device));
      const Tensor x = leaf({3, 4}, 5, device);
      const Tensor y = graphed(tanh(x));
      (y * y).sum().backward();
      const Tensor w2 = w.detach().clone().set_requires_grad();
      const Tensor x2 = x.detach().clone().set_requires_grad();
      const Tensor y2 = matmul(tanh(x2), w2);
      (y2 * y2).sum().backward();
      check_identical(x.grad(), x2.grad());
      check_identical(w.grad(), w2.grad());
    });
  }

  TEST_CASE("a hook of a leaf runs once, on the complete gradient") {
    for_each_device([](Device device) {
      const Tensor w = leaf({2}, 3, device);
      int calls = 0;
      (void)w.register_hook([&calls](const Tensor& grad) {
        ++calls;
        return grad * 10.0;
      });
      GraphedCallable graphed =
          make_graphed_callables([w](const Tensor& x) { return x * w; }, leaf({2}, 1, device));
      CHECK(calls == 0);
      const Tensor x = ones({2}, {.device = device}).set_requires_grad();
      (Tensor(graphed(x)) + w).sum().backward();
      CHECK(calls == 1);
      check_close(w.grad(), {20, 20}, 0.0);
    });
  }

  TEST_CASE("A1, R6: gradients handed out are the user's own") {
    for_each_device([](Device device) {
      const Tensor w = filled({2, 3}, 1.0, device).set_requires_grad();
      GraphedCallable graphed =
          make_graphed_callables([w](const Tensor& x) { return matmul(x, w.transpose(0, 1)); },
                                 ones({2, 3}, {.device = device}));
      Tensor(graphed(ones({2, 3}, {.device = device}))).sum().backward();
      Tensor(graphed(filled({2, 3}, 10.0, device))).sum().backward();
      check_close(w.grad(), std::vector<double>(6, 22.0), 0.0);

      w.set_grad(Tensor());
      Tensor(graphed(ones({2, 3}, {.device = device}))).sum().backward();
      const Tensor first = w.grad();
      w.set_grad(Tensor());
      Tensor(graphed(filled({2, 3}, 10.0, device))).sum().backward();
      check_close(first, std::vector<double>(6, 2.0), 0.0);
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

  TEST_CASE("A5: two forwards before one backward are right with two slots, an error with one") {
    for_each_device([](Device device) {
      const Tensor w = leaf({3, 3}, 3, device);
      const auto f = [w](const Tensor& x) { return tanh(matmul(x, w)); };
      const Tensor x1 = leaf({2, 3}, 4, device);
      const Tensor x2 = leaf({2, 3}, 5, device);
      (f(x1).sum() + f(x2).sum()).backward();
      const Tensor want_w = w.grad();
      const Tensor want_1 = x1.grad();
      const Tensor want_2 = x2.grad();
      for (const Tensor& tensor : {w, x1, x2}) tensor.set_grad(Tensor());

      GraphedCallable two = make_graphed_callables(f, leaf({2, 3}, 9, device), {.slots = 2});
      const Tensor y1 = two(x1);
      const Tensor y2 = two(x2);
      (y1.sum() + y2.sum()).backward();
      check_identical(w.grad(), want_w);
      check_identical(x1.grad(), want_1);
      check_identical(x2.grad(), want_2);
      check_identical(y1.detach(), f(x1).detach());

      GraphedCallable one = make_graphed_callables(f, leaf({2, 3}, 9, device), {.name = "one"});
      const Tensor z1 = one(x1);
      const Tensor z2 = one(x2);
      check_identical(z1.detach(), f(x1).detach());
      CHECK_THROWS_WITH_AS((z1.sum() + z2.sum()).backward(),
                           Contains("at most 1 forwards may wait for their backward"), GradError);
      Tensor(one(x1)).sum().backward();  // works again
    });
  }

  TEST_CASE("a slot whose forward was dropped without a backward is free again") {
    for_each_device([](Device device) {
      GraphedCallable graphed = make_graphed_callables([](const Tensor& x) { return tanh(x); },
                                                       leaf({3}, 1, device), {.slots = 2});
      const Tensor kept = leaf({3}, 2, device);
      const Tensor y = graphed(kept);
      for (std::uint64_t i = 0; i < 5; ++i) (void)graphed(leaf({3}, 3 + i, device));
      y.sum().backward();
      const Tensor eager = kept.detach().clone().set_requires_grad();
      tanh(eager).sum().backward();
      check_identical(kept.grad(), eager.grad());
    });
  }

  TEST_CASE("A6: callables of one pool are right in any order of forwards and backwards") {
    for_each_device([](Device device) {
      const Tensor wa = leaf({3, 3}, 3, device);
      const Tensor wb = leaf({3, 3}, 4, device);
      const auto a = [wa](const Tensor& x) { return tanh(matmul(x, wa)); };
      const auto b = [wb](const Tensor& x, const Tensor& mask) { return matmul(x, wb) * mask; };
      const Tensor mask = random_tensor({2, 3}, 8, DType::float32, device);
      std::vector<GraphedCallable> layers =
          make_graphed_callables({Graphable(a, leaf({2, 3}, 1, device), "a"),
                                  Graphable(b, TensorTree({leaf({2, 3}, 2, device), mask}), "b")},
                                 {.slots = 2});
      CHECK(layers[0].pool() == layers[1].pool());

      const auto forward = [&](bool graphed, const Tensor& x) {
        if (!graphed) return b(a(x), mask);
        return layers[1](layers[0](x), mask).tensor();
      };
      std::vector<std::vector<Tensor>> grads;
      for (const bool graphed : {false, true}) {
        std::vector<Tensor> x;
        for (std::uint64_t i = 0; i < 3; ++i) x.push_back(leaf({2, 3}, 20 + i, device));
        const Tensor f1 = forward(graphed, x[0]);
        const Tensor f2 = forward(graphed, x[1]);
        (f1 * f1).sum().backward();
        const Tensor f3 = forward(graphed, x[2]);
        (f2 * f2).sum().backward();
        (f3 * f3).sum().backward();
        grads.push_back({x[0].grad(), x[1].grad(), x[2].grad(), wa.grad(), wb.grad(), f1.detach(),
                         f2.detach(), f3.detach()});
        wa.set_grad(Tensor());
        wb.set_grad(Tensor());
      }
      for (std::size_t i = 0; i < grads[0].size(); ++i) check_identical(grads[1][i], grads[0][i]);
    });
  }

  TEST_CASE(
      "I1, R5: a result stays what it was; a static one that was overwritten cannot be read") {
    for_each_device([](Device device) {
      const auto f = [](const Tensor& x) { return x + 1.0; };
      const Tensor sample = zeros({1}, {.device = device});
      GraphedCallable owned = make_graphed_callables(f, sample);
      const Tensor a = owned(filled({1}, 1.1, device));
      const Tensor b = owned(filled({1}, 1.2, device));
      check_close(a, {2.1}, 1e-6);
      check_close(b, {2.2}, 1e-6);

      GraphedCallable lent =
          make_graphed_callables(f, sample, {.name = "f", .static_results = true});
      const Tensor c = lent(filled({1}, 1.1, device));
      check_close(c, {2.1}, 1e-6);
      const Tensor view = c.reshape({1, 1});
      const Tensor alias = c.detach();
      const Tensor copy = c.clone();
      const Tensor d = lent(filled({1}, 1.2, device));
      check_close(d, {2.2}, 1e-6);
      check_close(copy, {2.1}, 1e-6);
      for (const Tensor& stale : {c, view, alias}) {
        CHECK_THROWS_WITH_AS((void)stale.to_vector<float>(),
                             Contains("clone() it before that call"), StateError);
        CHECK_THROWS_WITH_AS((void)(stale * 2.0), Contains("static result of \"f\""), StateError);
      }
    });
  }

  TEST_CASE("static results and gradients pass on without copies, and feed themselves") {
    for_each_device([](Device device) {
      GraphedCallable f = make_graphed_callables([](const Tensor& x) { return x * 2.0; },
                                                 leaf({2}, 1, device), {.static_results = true});
      const Tensor x = filled({2}, 1.0, device).set_requires_grad();
      Tensor y = f(x * 1.0);
      Tensor first;
      const Tensor z = x * 1.0;
      (void)z.register_hook([&first](const Tensor& grad) {
        if (!first.defined()) first = grad;
        return grad;
      });
      y = f(z);
      y.sum().backward({}, {.retain_graph = true});
      check_close(x.grad(), {2, 2}, 0.0);
      check_close(first, {2, 2}, 0.0);
      y.sum().backward();
      check_close(x.grad(), {4, 4}, 0.0);
      CHECK_THROWS_AS((void)first.to_vector<float>(), StateError);
      const NoGradGuard no_grad;
      y = f(x);
      for (int i = 0; i < 3; ++i) y = f(y);
      check_close(y, {16, 16}, 0.0);
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

  TEST_CASE("backward twice and double backward are refused or right") {
    for_each_device([](Device device) {
      GraphedCallable f = make_graphed_callables([](const Tensor& x) { return x * x; },
                                                 leaf({2}, 1, device), {.name = "square"});
      const Tensor x = filled({2}, 3.0, device).set_requires_grad();
      const Tensor y = f(x);
      y.sum().backward({}, {.retain_graph = true});
      y.sum().backward();
      check_close(x.grad(), {12, 12}, 0.0);
      CHECK_THROWS_AS(y.sum().backward(), GradError);
      CHECK_THROWS_WITH_AS((void)grad({Tensor(f(x)).sum()}, {x}, {}, {.create_graph = true}),
                           Contains("square: a graphed callable cannot be differentiated twice"),
                           GradError);
    });
  }

  TEST_CASE("what backward reads and somebody wrote in between is an error") {
    for_each_device([](Device device) {
      const Tensor w = leaf({2}, 1, device);
      GraphedCallable f = make_graphed_callables([w](const Tensor& x) { return x * w; },
                                                 leaf({2}, 2, device), {.name = "f"});
      const Tensor y = f(leaf({2}, 3, device));
      {
        const NoGradGuard no_grad;
        w.add_(1.0);
      }
      CHECK_THROWS_WITH_AS(y.sum().backward(),
                           Contains("float32[2] that it refers to was modified"), GradError);
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

  TEST_CASE("only part of the results may take part in the loss") {
    for_each_device([](Device device) {
      const Graphable::Function f = [](const TensorTree& x) {
        return TensorTree({x.tensor() * 2.0, x.tensor() * 3.0, x.tensor()});
      };
      GraphedCallable g = make_graphed_callables(f, leaf({2}, 1, device));
      const Tensor x = leaf({2}, 2, device);
      const TensorTree y = g(x);
      Tensor(y[1]).sum().backward();
      check_close(x.grad(), {3, 3}, 0.0);
      const Tensor z = leaf({2}, 2, device);
      Tensor(g(z)[2]).sum().backward();
      check_close(z.grad(), {1, 1}, 0.0);
    });
  }

  TEST_CASE("D1, D4: random numbers go on as in eager calls, masks match their backward") {
    for_each_device([](Device device) {
      Generator generator(5, device);
      const auto f = [&generator](const Tensor& x) { return dropout(x, 0.5, true, &generator); };
      const Tensor x = ones({1024}, {.device = device}).set_requires_grad();
      std::vector<Tensor> want;
      for (int i = 0; i < 3; ++i) want.push_back(f(x).detach());
      const GeneratorState end = generator.state();
      generator.manual_seed(5);
      GraphedCallable g = make_graphed_callables(f, x);
      CHECK(generator.state() != end);
      for (int i = 0; i < 3; ++i) {
        x.set_grad(Tensor());
        const Tensor y = g(x);
        check_identical(y.detach(), want[static_cast<std::size_t>(i)]);
        y.sum().backward();
        check_identical(x.grad(), y.detach());  // 2 where y is 2, 0 elsewhere
      }
      CHECK_FALSE(identical(want[0], want[1]));
      CHECK(generator.state() == end);
      generator.manual_seed(6);
      CHECK_FALSE(identical(Tensor(g(x)).detach(), want[0]));
    });
  }

  TEST_CASE("without warm-up nothing but the recording runs") {
    for_each_device([](Device device) {
      int calls = 0;
      const Tensor w = leaf({16, 16}, 1, device);
      GraphedCallable g = make_graphed_callables(
          [&](const Tensor& x) {
            ++calls;
            return matmul(x, w);
          },
          leaf({4, 16}, 2, device), {.warmup = 0});
      CHECK(calls == 1);
      const Tensor x = leaf({4, 16}, 3, device);
      Tensor(g(x)).sum().backward();
      const Tensor y = leaf({4, 16}, 3, device);
      const Tensor before = w.grad();
      w.set_grad(Tensor());
      matmul(y, w).sum().backward();
      check_identical(x.grad(), y.grad());
      check_identical(before, w.grad());
    });
  }

  TEST_CASE("R3, R4: a callable that fails leaves everything as it was, at any run") {
    for_each_device([](Device device) {
      const Tensor w = leaf({2}, 1, device);
      const Tensor buffer = ones({2}, {.device = device});
      Generator generator(3, device);
      for (int failing = 1; failing <= 4; ++failing) {
        CAPTURE(failing);
        const Stream stream = current_stream(device);
        const GeneratorState state = generator.state();
        int calls = 0;
        const auto f = [&](const Tensor& x) {
          buffer.mul_(2.0);
          const Tensor y = dropout(x * w, 0.5, true, &generator);
          if (++calls == failing) throw std::runtime_error("the body failed");
          return y;
        };
        CHECK_THROWS_WITH_AS((void)make_graphed_callables(f, leaf({2}, 2, device)),
                             "the body failed", std::runtime_error);
        CHECK(current_stream(device) == stream);
        CHECK_FALSE(is_current_stream_capturing(device));
        CHECK(generator.state() == state);
        CHECK_FALSE(w.grad().defined());
        check_close(buffer, {1, 1}, 0.0);
      }
    });
  }

  TEST_CASE("R8: a gradient that the callable sets is as it was after graphing") {
    for_each_device([](Device device) {
      const Tensor w = leaf({2}, 1, device);
      const Tensor grad = ones({2}, {.device = device});
      w.set_grad(grad);
      (void)make_graphed_callables(
          [w](const Tensor& x) {
            w.set_grad(Tensor());
            return x * 2.0;
          },
          leaf({2}, 2, device));
      REQUIRE(w.grad().defined());
      CHECK(w.grad().is_same(grad));
      check_close(w.grad(), {1, 1}, 0.0);
    });
  }

  TEST_CASE("F5: reset gives the memory back; calls of the handle and late backwards say so") {
    for_each_device([](Device device) {
      (void)allocator(device).empty_cache();
      const std::int64_t before = allocator(device).stats().total.reserved_bytes;
      {
        GraphedCallable g = make_graphed_callables([](const Tensor& x) { return tanh(x); },
                                                   leaf({1 << 20}, 1, device), {.name = "big"});
        const Tensor y = g(leaf({1 << 20}, 2, device));
        g.reset();
        CHECK_THROWS_WITH_AS((void)g(leaf({1 << 20}, 2, device)), Contains("big: it was reset"),
                             StateError);
        CHECK_THROWS_WITH_AS(y.sum().backward(), Contains("big: it was reset"), GradError);
        CHECK_THROWS_AS((void)g.forward_graph(), StateError);
        g.reset();
      }
      (void)allocator(device).empty_cache();
      CHECK(allocator(device).stats().total.reserved_bytes == before);
    });
  }

  TEST_CASE("one pool for callables of two calls, or a pool of the user's") {
    for_each_device([](Device device) {
      const GraphPool pool = graph_pool_handle(device, "shared");
      GraphedCallable f = make_graphed_callables([](const Tensor& x) { return x + 1.0; },
                                                 leaf({64}, 1, device), {.pool = pool, .slots = 2});
      GraphedCallable g = make_graphed_callables([](const Tensor& x) { return x * 3.0; },
                                                 leaf({64}, 1, device), {.pool = pool});
      CHECK(f.pool() == pool);
      for (std::uint64_t i = 0; i < 3; ++i) {
        const Tensor x = leaf({64}, 5 + i, device);
        const Tensor y = f(g(f(x)));
        y.sum().backward();
        const Tensor z = x.detach().clone().set_requires_grad();
        const Tensor want = (z + 1.0) * 3.0 + 1.0;
        want.sum().backward();
        check_identical(y.detach(), want.detach());
        check_identical(x.grad(), z.grad());
      }
    });
  }

  TEST_CASE("R10: fifty callables in a row") {
    for_each_device([](Device device) {
      const GraphPool pool = graph_pool_handle(device);
      std::vector<GraphedCallable> all;
      for (int i = 0; i < 50; ++i) {
        all.push_back(make_graphed_callables([i](const Tensor& x) { return x + double(i); },
                                             leaf({8}, 1, device), {.warmup = 1, .pool = pool}));
      }
      const Tensor x = zeros({8}, {.device = device}).set_requires_grad();
      for (std::size_t i = 0; i < all.size(); ++i) {
        check_close(all[i](x), std::vector<double>(8, static_cast<double>(i)), 0.0);
      }
    });
  }

  TEST_CASE("a whole step with graphed parts can be captured") {
    for_each_device([](Device device) {
      const Tensor w = leaf({3, 3}, 3, device);
      Generator generator(5, device);
      const auto f = [&](const Tensor& x) {
        return dropout(tanh(matmul(x, w)), 0.5, true, &generator);
      };
      GraphedCallable graphed = make_graphed_callables(f, leaf({2, 3}, 1, device));
      const Tensor x = random_tensor({2, 3}, 7, DType::float32, device).set_requires_grad();
      Graph whole(device);
      Tensor loss;
      capture(whole, [&] {
        loss = square(Tensor(graphed(x))).sum();
        x.set_grad(Tensor());
        w.set_grad(Tensor());
        loss.backward();
      });
      for (int i = 0; i < 3; ++i) {
        const GeneratorState state = generator.state();
        whole.replay();
        const Tensor w2 = w.detach().clone().set_requires_grad();
        const Tensor x2 = x.detach().clone().set_requires_grad();
        Generator same(5, device);
        same.set_state(state);
        const Tensor want = square(dropout(tanh(matmul(x2, w2)), 0.5, true, &same)).sum();
        want.backward();
        check_identical(loss.detach(), want.detach());
        check_identical(x.grad(), x2.grad());
        check_identical(w.grad(), w2.grad());
        CHECK(generator.state() == same.state());
        (void)graphed(x2);  // a call of its own in between disturbs nothing
      }
    });
  }

  TEST_CASE("calls on two streams are put in order") {
    for_each_device([](Device device) {
      GraphedCallable f = make_graphed_callables([](const Tensor& x) { return x * 2.0 + 1.0; },
                                                 ones({4096}, {.device = device}));
      const Stream side = Stream::create(device);
      const Tensor a = filled({4096}, 1.0, device);
      const Tensor b = filled({4096}, 2.0, device);
      side.wait_stream(current_stream(device));
      std::vector<Tensor> results;
      for (int i = 0; i < 4; ++i) {
        const StreamGuard guard(i % 2 == 0 ? side : default_stream(device));
        results.push_back(f(i % 2 == 0 ? a : b));
      }
      current_stream(device).wait_stream(side);
      for (std::size_t i = 0; i < results.size(); ++i) {
        check_close(results[i], std::vector<double>(4096, i % 2 == 0 ? 3.0 : 5.0), 0.0);
      }
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

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
}

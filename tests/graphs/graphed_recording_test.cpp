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

TEST_SUITE("graphs/graphed_recording") {
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
}

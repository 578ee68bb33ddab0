#include "autograd/engine.h"

#include <doctest/doctest.h>
#include <pthread.h>

#include <functional>
#include <thread>

#include "autograd/arithmetic.h"
#include "autograd/grad_mode.h"
#include "framework/core/counters.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/write_journal.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;
using testing::for_each_device;
using testing::tolerance_for;

Tensor values(const std::vector<float>& elements, Device device = Device::cpu()) {
  return Tensor::from_vector({static_cast<std::int64_t>(elements.size())}, elements, device);
}

Tensor leaf(const std::vector<float>& elements, Device device = Device::cpu()) {
  return values(elements, device).set_requires_grad();
}

/// Runs `body` where a stack frame per operation of a long graph would not fit.
void on_small_stack(const std::function<void()>& body) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, 256 << 10) == 0);
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&body)) ==
          0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST_SUITE("autograd/engine") {
  TEST_CASE("gradients match hand-computed values") {
    for_each_device([](Device device) {
      const double tolerance = tolerance_for(DType::float32, device);
      const Tensor a = leaf({1, 2, 3}, device);
      const Tensor b = leaf({4, 5, 6}, device);
      (a * b + a).sum().backward();
      check_close(a.grad(), {5, 6, 7}, tolerance);
      check_close(b.grad(), {1, 2, 3}, tolerance);
    });
  }

  TEST_CASE("contributions of all uses add up before they go on") {
    for_each_device([](Device device) {
      const double tolerance = tolerance_for(DType::float32, device);
      const Tensor x = leaf({1, -2, 3}, device);
      const Tensor y = x * x;      // 2x
      const Tensor z = y * y + y;  // (2y + 1) 2x
      z.sum().backward();
      check_close(x.grad(), {6, -36, 114}, tolerance);
    });
  }

  TEST_CASE("a gradient weights the outputs") {
    const Tensor x = leaf({1, 2});
    (x * 3.0).backward(values({10, 100}));
    check_close(x.grad(), {30, 300}, 1e-6);
  }

  TEST_CASE("several outputs count together") {
    const Tensor x = leaf({1, 2});
    const Tensor y = x * x;
    backward({y, y.sum(), x}, {values({1, 1}), Tensor(), values({5, 7})});
    check_close(x.grad(), {9, 15}, 1e-6);
  }

  TEST_CASE("a second backward adds to the same memory") {
    for_each_device([](Device device) {
      const Tensor x = leaf({1, 2}, device);
      (x * 3.0).sum().backward();
      const Tensor first = x.grad();
      (x * 4.0).sum().backward();
      CHECK(x.grad().raw_data() == first.raw_data());
      check_close(x.grad(), {7, 7}, tolerance_for(DType::float32, device));
    });
  }

  TEST_CASE("leaves never share the memory of their gradients") {
    const Tensor a = leaf({1, 2});
    const Tensor b = leaf({3, 4});
    const Tensor seed = values({1, 1});
    (a + b).backward(seed);
    (void)a.grad().fill_(9.0);
    check_close(b.grad(), {1, 1}, 0.0);
    check_close(seed, {1, 1}, 0.0);
  }

  TEST_CASE("a gradient that nobody else sees is kept without a copy") {
    const Tensor x = leaf({1, 2});
    const Tensor y = x * 3.0;
    const Tensor seed = values({1, 1});
    const std::int64_t before = counters().dispatches;
    y.backward(seed);
    CHECK(counters().dispatches - before == 1);  // the product 3 * seed
  }

  TEST_CASE("a used graph is refused and changes nothing") {
    const Tensor x = leaf({1, 2});
    const Tensor y = (x * x).sum();
    y.backward();
    CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("pass retain_graph = true"), GradError);
    check_close(x.grad(), {2, 4}, 0.0);
  }

  TEST_CASE("a used part of a graph is named with its line") {
    const Tensor x = leaf({1, 2});
    const Tensor shared = x * x;
    shared.sum().backward();
    const Tensor w = leaf({1, 1});
    const Tensor y = (shared * w).sum();
    CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("mul (recorded at"), GradError);
    CHECK_FALSE(w.grad().defined());
  }

  TEST_CASE("retain_graph permits another backward") {
    const Tensor x = leaf({1, 2});
    const Tensor y = (x * x).sum();
    y.backward({}, {.retain_graph = true});
    y.backward();
    check_close(x.grad(), {4, 8}, 0.0);
    CHECK_THROWS_AS(y.backward(), GradError);
  }

  TEST_CASE("an error on the way leaves every gradient as it was") {
    const Tensor x = leaf({1, 2});
    const Tensor w = leaf({3, 4});
    (x * 2.0).sum().backward();
    const Tensor inner = x * x;
    (void)inner.register_hook([](const Tensor&) -> Tensor { throw ValueError("hook: no"); });
    const Tensor y = (inner * w).sum();
    CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("hook: no"), ValueError);
    check_close(x.grad(), {2, 2}, 0.0);
    CHECK_FALSE(w.grad().defined());
  }

  TEST_CASE("bad outputs and gradients are refused") {
    const Tensor x = leaf({1, 2});
    const Tensor y = x * x;
    CHECK_THROWS_WITH_AS(values({1}).backward(), doctest::Contains("does not come from a tensor"),
                         GradError);
    CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("has 2 elements and no gradient"),
                         GradError);
    CHECK_THROWS_WITH_AS(y.backward(values({1, 2, 3})),
                         doctest::Contains("gradient 0 has shape [3], its tensor has [2]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(y.backward(ones({2}, {.dtype = DType::float64})),
                         doctest::Contains("gradient 0 is float64"), DTypeError);
    CHECK_THROWS_WITH_AS(backward({y, y}, {values({1, 1})}),
                         doctest::Contains("got 1 gradients for 2 outputs"), GradError);
    CHECK_THROWS_WITH_AS(backward({}), doctest::Contains("no outputs"), GradError);
    CHECK_THROWS_WITH_AS(backward({Tensor()}), doctest::Contains("output 0 is undefined"),
                         GradError);
    CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("engine_test.cpp"), GradError);
    CHECK_FALSE(x.grad().defined());
  }

  TEST_CASE("create_graph makes gradients differentiable") {
    for_each_device([](Device device) {
      const double tolerance = tolerance_for(DType::float32, device);
      const Tensor x = leaf({2, -1}, device);
      const Tensor cube = x * x * x;
      const Tensor first = grad({cube.sum()}, {x}, {}, {.create_graph = true})[0];
      check_close(first, {12, 3}, tolerance);
      const Tensor second = grad({first.sum()}, {x}, {}, {.create_graph = true})[0];
      check_close(second, {12, -6}, tolerance);
      check_close(grad({second.sum()}, {x})[0], {6, 6}, tolerance);

      cube.sum().backward({}, {.create_graph = true});
      const Tensor kept = x.grad();
      CHECK(kept.requires_grad());
      x.set_grad(Tensor());
      kept.sum().backward();
      check_close(x.grad(), {12, -6}, tolerance);
    });
  }

  TEST_CASE("without create_graph gradients have no history") {
    const Tensor x = leaf({2, -1});
    const Tensor seed = leaf({1, 1});
    (x * x).backward(seed);
    CHECK_FALSE(x.grad().requires_grad());
    x.set_grad(Tensor());
    (x + 1.0).backward(seed);
    CHECK_FALSE(x.grad().requires_grad());
    CHECK_FALSE(seed.grad().defined());
  }

  TEST_CASE("grad leaves every leaf alone and takes inputs that are no leaves") {
    const Tensor x = leaf({1, 2});
    const Tensor w = leaf({3, 4});
    const Tensor h = x * w;
    const Tensor y = (h * h).sum();
    const std::vector<Tensor> gradients = grad({y}, {h, x, h});
    check_close(gradients[0], {6, 16}, 0.0);
    check_close(gradients[1], {18, 64}, 0.0);
    check_close(gradients[2], {6, 16}, 0.0);
    CHECK(gradients[0].raw_data() != gradients[2].raw_data());
    CHECK_FALSE(x.grad().defined());
    CHECK_FALSE(w.grad().defined());
  }

  TEST_CASE("grad runs only what leads to its inputs") {
    const Tensor x = leaf({1, 2});
    const Tensor w = leaf({3, 4});
    const Tensor unwanted = w * w;
    int calls = 0;
    (void)unwanted.register_hook([&](const Tensor&) {
      ++calls;
      return Tensor();
    });
    const Tensor y = (x * unwanted).sum();
    check_close(grad({y}, {x}, {}, {.retain_graph = true})[0], {9, 16}, 0.0);
    CHECK(calls == 0);
    check_close(grad({y}, {w})[0], {6, 16}, 0.0);
    CHECK(calls == 1);
  }

  TEST_CASE("an input without influence is an error or undefined, as asked") {
    const Tensor x = leaf({1, 2});
    const Tensor w = leaf({3, 4});
    const Tensor y = (x * x).sum();
    CHECK_THROWS_WITH_AS((void)grad({y}, {x, w}), doctest::Contains("input 1"), GradError);
    CHECK_THROWS_WITH_AS((void)grad({y}, {values({1, 2})}),
                         doctest::Contains("input 0 does not require"), GradError);
    const std::vector<Tensor> gradients =
        grad({y}, {w, x, values({1})}, {}, {.allow_unused = true});
    CHECK_FALSE(gradients[0].defined());
    check_close(gradients[1], {2, 4}, 0.0);
    CHECK_FALSE(gradients[2].defined());
  }

  TEST_CASE("nothing is recorded under NoGradGuard") {
    const Tensor x = leaf({1, 2});
    Tensor y;
    {
      const NoGradGuard guard;
      CHECK_FALSE(grad_enabled());
      y = x * x;
    }
    CHECK(grad_enabled());
    CHECK_FALSE(y.requires_grad());
    CHECK(y.is_leaf());
  }

  TEST_CASE("a graph of 100,000 operations runs and goes away") {
    const Tensor x = leaf({1});
    const auto chain = [&](bool saves) {
      const Tensor one = values({1});
      Tensor y = x;
      for (int i = 0; i < 100'000; ++i) y = saves ? y * one : y + one;
      return y;
    };
    on_small_stack([&] {
      for (const bool saves : {false, true}) {
        x.set_grad(Tensor());
        chain(saves).backward();
        check_close(x.grad(), {1}, 0.0);
        (void)chain(saves);                                 // goes away unused
        chain(saves).backward({}, {.retain_graph = true});  // goes away with what it saved
      }
      Tensor square = x;
      for (int i = 0; i < 100'000; ++i) square = square * square;  // edges and saved tensors alike
      square.backward();
    });
  }

  TEST_CASE("threads may run backward into one leaf") {
    const Tensor w = leaf({1, 2});
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) (w * 2.0).sum().backward();
      });
    }
    for (std::thread& thread : threads) thread.join();
    check_close(w.grad(), {800, 800}, 0.0);
  }

  TEST_CASE("a journal takes gradients back to what they were") {
    const Tensor fresh = leaf({1, 2});
    const Tensor used = leaf({1, 2});
    (used * 5.0).sum().backward();
    const Tensor before = used.grad();
    {
      WriteJournal journal;
      (fresh * used).sum().backward();
      (fresh * used).sum().backward();
      CHECK(fresh.grad().defined());
      journal.rollback();
    }
    CHECK_FALSE(fresh.grad().defined());
    CHECK(used.grad().is_same(before));
    check_close(used.grad(), {5, 5}, 0.0);
  }
}

}  // namespace
}  // namespace capstan

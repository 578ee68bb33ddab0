#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "autograd/arithmetic.h"
#include "autograd/grad_mode.h"
#include "autograd/layout.h"
#include "autograd/linalg.h"
#include "autograd/reduce.h"
#include "graphs/capture_scope.h"
#include "nn/linear.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;
using doctest::Contains;

namespace {

Tensor filled(double value, Device device) { return full({4}, value, {.device = device}); }

}  // namespace

TEST_SUITE("graphs/foreign_storages") {
  TEST_CASE("H1: a graph holds what it reads, unless told to check it") {
    for_each_device([](Device device) {
      for (const ForeignMemory mode : {ForeignMemory::retain, ForeignMemory::check}) {
        Graph graph(device, {.name = "double"});
        Tensor y;
        {
          const Tensor x = ones({4}, {.device = device});
          capture(graph, [&] { y = x * 2.0; }, {.foreign_memory = mode});
          graph.replay();
        }
        const Tensor z = filled(7.0, device);
        if (mode == ForeignMemory::retain) {
          graph.replay();
          check_close(y, {2, 2, 2, 2}, 0.0);
        } else {
          CHECK_THROWS_WITH_AS(graph.replay(),
                               Contains("graph \"double\": float32[4] that mul reads (at "),
                               StateError);
        }
      }
    });
  }

  TEST_CASE("H1: a view of a living tensor and another graph's result are no error") {
    for_each_device([](Device device) {
      const CaptureOptions check{.foreign_memory = ForeignMemory::check};
      const Tensor whole = filled(3.0, device);
      Graph first(device);
      Tensor y;
      capture(
          first, [&] { y = whole.slice(0, 0, 2) * 2.0; }, check);
      Graph second(device);
      Tensor z;
      capture(second, [&] { z = y + 1.0; },
              {.pool = first.pool(), .foreign_memory = ForeignMemory::check});
      first.replay();
      second.replay();
      check_close(z, {7, 7}, 0.0);
    });
  }

  TEST_CASE("H2: a replay after set_data is refused, writing in place is right") {
    for_each_device([](Device device) {
      nn::Linear layer(2, 1, {.bias = false, .device = device});
      const NoGradGuard no_grad;
      layer.weight.fill_(1.0);
      const Tensor x = ones({1, 2}, {.device = device});
      Graph graph(device, {.name = "linear"});
      Tensor y;
      capture(graph, [&] { y = layer(x); });
      graph.replay();
      check_close(y, {2}, 0.0);
      layer.weight.copy_(full({1, 2}, 2.0, {.device = device}));
      graph.replay();
      check_close(y, {4}, 0.0);

      const Tensor old = layer.weight.detach();
      layer.weight.set_data(full({1, 2}, 3.0, {.device = device}));
      for (int again = 0; again < 2; ++again) {
        CHECK_THROWS_WITH_AS(graph.replay(),
                             Contains("graph \"linear\": float32[1, 2] that linear reads"),
                             StateError);
      }
      check_close(y, {4}, 0.0);
      layer.weight.set_data(old);  // back where it was
      graph.replay();
      check_close(y, {4}, 0.0);
    });
  }

  TEST_CASE("H2: other tensors that get other memory do not matter") {
    for_each_device([](Device device) {
      const Tensor x = ones({4}, {.device = device});
      const Tensor other = ones({4}, {.device = device});
      Graph graph(device);
      Tensor y;
      capture(graph, [&] { y = x + 1.0; });
      other.set_data(zeros({4}, {.device = device}));
      graph.replay();
      check_close(y, {2, 2, 2, 2}, 0.0);
    });
  }

  TEST_CASE("I4: what a capture computes cannot be read before a replay computed it") {
    for_each_device([](Device device) {
      const Tensor a = Tensor::from_vector({6}, std::vector<float>{1, 2, 3, 4, 5, 6}, device);
      Graph g1(device, {.name = "g1"});
      Graph g2(device, {.name = "g2"});
      Tensor r1;
      Tensor r2;
      capture(g1, [&] { r1 = min(a); });
      capture(g2, [&] { r2 = min(a); });
      for (const auto& read : std::vector<std::function<void()>>{
               [&] { (void)r1.item(); }, [&] { (void)(r1 + 1.0); },
               [&] { (void)r1.reshape({1}).to_vector<float>(); },
               [&] { (void)zeros({}, {.device = device}).copy_(r1.detach()); }}) {
        CHECK_THROWS_WITH_AS(read(),
                             Contains("graph \"g1\" computes this tensor and was never replayed"),
                             StateError);
      }
      g1.replay();
      CHECK(r1.item() == 1.0);
      a.slice(0, 0, 1).fill_(2.0);
      const Tensor noise = random_tensor({1024}, 1, DType::float32, device);
      g2.replay();
      CHECK(r2.item() == 2.0);
      CHECK(r1.item() == 1.0);
    });
  }

  TEST_CASE("I4: a captured tensor may be written before the first replay, and captured again") {
    for_each_device([](Device device) {
      const Tensor x = ones({4}, {.device = device});
      Graph first(device);
      Tensor y;
      capture(first, [&] { y = x * 2.0; });
      Graph second(device);
      Tensor z;
      capture(second, [&] { z = y + 1.0; });
      y.fill_(5.0);
      check_close(y, {5, 5, 5, 5}, 0.0);
      second.replay();
      check_close(z, {6, 6, 6, 6}, 0.0);
    });
  }

  TEST_CASE("I4: what a nested graph computes can be read once the outer graph has run") {
    for_each_device([](Device device) {
      const Tensor x = full({4}, 3.0, {.device = device});
      Graph inner(device, {.name = "inner"});
      Tensor y;
      capture(inner, [&] { y = x * 2.0; });
      Graph outer(device);
      Tensor z;
      capture(outer, [&] {
        inner.replay();
        z = y + 1.0;
      });
      CHECK_THROWS_WITH_AS((void)y.to_vector<float>(), Contains("graph \"inner\" computes"),
                           StateError);
      outer.replay();
      check_close(y, {6, 6, 6, 6}, 0.0);
      check_close(z, {7, 7, 7, 7}, 0.0);
    });
  }

  TEST_CASE("H1, H2: a nested graph is checked as one of its own") {
    for_each_device([](Device device) {
      const Tensor x = filled(3.0, device);
      Graph inner(device, {.name = "inner"});
      Tensor y;
      capture(inner, [&] { y = x * 2.0; });
      Graph outer(device, {.name = "outer"});
      capture(outer, [&] { inner.replay(); });
      outer.replay();
      x.set_data(filled(5.0, device));
      CHECK_THROWS_WITH_AS(outer.replay(), Contains("graph \"outer\": float32[4] that mul reads"),
                           StateError);

      Graph checking(device, {.name = "checking"});
      capture(checking, [&] { y = x * 2.0; }, {.foreign_memory = ForeignMemory::check});
      Graph another(device);
      CHECK_THROWS_WITH_AS(capture(another, [&] { checking.replay(); }),
                           Contains("\"checking\" checks the memory that it uses"), CaptureError);
    });
  }
}

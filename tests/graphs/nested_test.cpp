#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "autograd/arithmetic.h"
#include "autograd/engine.h"
#include "autograd/layout.h"
#include "autograd/reduce.h"
#include "framework/random/generator.h"
#include "graphs/capture_scope.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;
using doctest::Contains;

TEST_SUITE("graphs/nested") {
  TEST_CASE("a replay in a capture is part of it, as often as it was called") {
    for_each_device([](Device device) {
      const Tensor x = zeros({3}, {.device = device});
      Graph inner(device);
      capture(inner, [&] { x.copy_(x * 2.0 + 1.0); });
      Graph outer(device);
      capture(outer, [&] {
        x.add_(10.0);
        inner.replay();
        inner.replay();
        x.sub_(1.0);
      });
      check_close(x, {0, 0, 0}, 0.0);
      outer.replay();
      check_close(x, {42, 42, 42}, 0.0);
      inner.replay();
      outer.replay();
      check_close(x, {382, 382, 382}, 0.0);
      CHECK(inner.replay_count() == 1);
      CHECK(outer.replay_count() == 2);
    });
  }

  TEST_CASE("a nested replay draws fresh numbers, those of the eager run") {
    for_each_device([](Device device) {
      const Generator generator = default_generator(device);
      const Tensor x = ones({1000}, {.device = device});
      const Tensor y = zeros({1000}, {.device = device});
      std::vector<Tensor> got;
      for (int i = 0; i < 4; ++i) got.push_back(zeros({1000}, {.device = device}));
      const auto draw = [&](const Tensor& to) { to.copy_(dropout(x, 0.5)); };

      Graph inner(device);
      capture(inner, [&] { draw(y); });
      Graph outer(device);
      capture(outer, [&] {
        draw(got[0]);
        inner.replay();
        got[1].copy_(y);
        draw(got[2]);
        inner.replay();
        got[3].copy_(y);
      });
      for (const std::uint64_t seed : {6, 314, 271}) {
        manual_seed(seed);
        std::vector<Tensor> want;
        for (int i = 0; i < 9; ++i) {
          want.push_back(zeros({1000}, {.device = device}));
          draw(want.back());
        }
        const GeneratorState after = generator.state();

        manual_seed(seed);
        for (std::size_t i = 0; i < 2; ++i) {
          outer.replay();
          for (std::size_t k = 0; k < 4; ++k) check_identical(got[k], want[4 * i + k]);
        }
        inner.replay();  // by itself, where the others left off
        check_identical(y, want[8]);
        CHECK(generator.state() == after);
      }
    });
  }

  TEST_CASE("the outer graph keeps what the inner one needs, past its destruction") {
    for_each_device([](Device device) {
      const Tensor result = zeros({1 << 16}, {.device = device});
      Graph outer(device);
      std::uint64_t pool = 0;
      const auto pool_exists = [&] {
        for (const PoolReport& report : allocator(device).stats().pools) {
          if (report.id == pool) return true;
        }
        return false;
      };
      {
        const Tensor hidden = full({1 << 16}, 3.0, {.device = device});
        Graph inner(device);
        capture(inner, [&] { result.copy_(dropout(hidden * 2.0, 0.0) + 1.0); });
        pool = inner.pool().id();
        capture(outer, [&] { inner.replay(); });
        REQUIRE(outer.pools().size() == 2);
        CHECK(outer.pools()[0] == outer.pool());
        CHECK(outer.pools()[1] == inner.pool());
      }
      CHECK(pool_exists());
      const Tensor other = full({1 << 16}, 100.0, {.device = device});
      for (int i = 0; i < 2; ++i) {
        result.fill_(0.0);
        outer.replay();
        CHECK(result.sum().item() == 7.0 * (1 << 16));
      }
      outer.reset();
      CHECK_FALSE(pool_exists());
    });
  }

  TEST_CASE("graphs nest in each other, and the recording says where an operation comes from") {
    for_each_device([](Device device) {
      const Tensor x = ones({100}, {.device = device});
      const Tensor y = zeros({100}, {.device = device});
      Graph inner(device, {.name = "inner"});
      capture(inner, [&] { y.add_(dropout(x, 0.5)); });
      Graph middle(device, {.name = "middle"});
      capture(middle, [&] {
        inner.replay();
        y.mul_(2.0);
      });
      Graph outer(device, {.name = "outer"});
      capture(outer, [&] {
        middle.replay();
        y.add_(1.0);
      });
      CHECK(outer.pools().size() == 3);

      std::vector<std::string> graphs;
      for (const RecordedOp& operation : outer.recording().operations) {
        if (operation.name.find("generator") == std::string::npos) {
          graphs.push_back(operation.graph);
        }
      }
      REQUIRE(graphs.size() == 4);
      CHECK(graphs.front() == "middle/inner");
      CHECK(graphs[2] == "middle");
      CHECK(graphs[3].empty());
      CHECK(outer.to_dot().find("graph middle/inner") != std::string::npos);
      const std::int64_t blocks = allocator(device).stats().total.blocks;
      inner.reset();
      middle.reset();
      CHECK(allocator(device).stats().total.blocks == blocks);  // seed and offset of each

      manual_seed(5);
      Tensor want = zeros({100}, {.device = device});
      for (int i = 0; i < 2; ++i) want = (want + dropout(x, 0.5)) * 2.0 + 1.0;
      manual_seed(5);
      for (int i = 0; i < 2; ++i) outer.replay();
      check_identical(y, want);
    });
  }

  TEST_CASE("a graph of the capture's own pool is refused, and the capture goes on") {
    for_each_device([](Device device) {
      const Tensor x = zeros({2}, {.device = device});
      Graph inner(device, {.name = "inner"});
      capture(inner, [&] { x.add_(1.0); });
      Graph middle(device, {.name = "middle"});
      capture(middle, [&] { inner.replay(); });
      Graph outer(device);
      capture(outer,
              [&] {
                x.add_(10.0);
                CHECK_THROWS_WITH_AS(inner.replay(),
                                     Contains("graph \"inner\" uses the pool that this"),
                                     CaptureError);
                CHECK_THROWS_WITH_AS(middle.replay(), Contains("graph \"middle\" uses the pool"),
                                     CaptureError);
              },
              {.pool = inner.pool()});
      CHECK(outer.recording().operations.size() == 1);
      outer.replay();
      inner.replay();
      check_close(x, {11, 11}, 0.0);
    });
  }

  TEST_CASE("a graph of another device is refused") {
    const Emulated emulated;
    const Device device = Device::cpu(1);
    const Tensor x = zeros({2}, {.device = device});
    const Tensor y = zeros({2});
    Graph there(device);
    capture(there, [&] { x.add_(1.0); });
    Graph here;
    capture(here, [&] {
      y.add_(1.0);
      CHECK_THROWS_WITH_AS(there.replay(), Contains("graph.replay: device cpu:1 inside capture"),
                           CaptureError);
    });
    synchronize(device);
    check_close(x, {0, 0}, 0.0);
  }

  TEST_CASE(
      "a nested replay on a forked stream runs beside the rest, and a missing wait is found") {
    for_each_device([](Device device) {
      const Tensor x = ones({1000}, {.device = device});
      const Tensor y = zeros({1000}, {.device = device});
      const Tensor z = zeros({1000}, {.device = device});
      const Stream side = Stream::create(device);
      Graph inner(device, {.name = "inner"});
      capture(inner, [&] { y.copy_(x + 1.0); });
      const auto body = [&](bool waits) {
        const Stream origin = current_stream(device);
        side.wait_stream(origin);
        {
          const StreamGuard guard(side);
          inner.replay();
        }
        if (waits) origin.wait_stream(side);
        z.copy_(y * 3.0);
        if (!waits) origin.wait_stream(side);
      };
      Graph outer(device);
      CHECK_THROWS_WITH_AS(capture(outer, [&] { body(false); }), Contains("in graph \"inner\""),
                           CaptureError);
      capture(outer, [&] { body(true); });
      outer.replay();
      CHECK(z.sum().item() == 6000.0);
    });
  }

  TEST_CASE("graphs nested in each other's pools replay from several threads") {
    for_each_device([](Device device) {
      const Tensor x = zeros({64}, {.device = device});
      const Tensor y = zeros({64}, {.device = device});
      Graph a(device);
      Graph b(device);
      capture(a, [&] { x.copy_((x + 2.0) - 1.0); });
      capture(b, [&] { y.copy_((y + 2.0) - 1.0); });
      Graph in_a(device);
      Graph in_b(device);
      capture(in_a, [&] { b.replay(); }, {.pool = a.pool()});
      capture(in_b, [&] { a.replay(); }, {.pool = b.pool()});
      synchronize(device);
      const int replays = device.is_host() ? 20000 : 200;
      std::latch start(2);
      const auto work = [&start, device, replays](Graph& graph) {
        const Stream stream = Stream::create(device);
        const StreamGuard guard(stream);
        start.arrive_and_wait();
        for (int i = 0; i < replays; ++i) graph.replay();
        stream.synchronize();
      };
      std::thread other([&] { work(in_a); });
      work(in_b);
      other.join();
      CHECK(x.sum().item() == 64.0 * replays);
      CHECK(y.sum().item() == 64.0 * replays);
    });
  }

  TEST_CASE("a replay of the outer graph counts as a write of what the inner one writes") {
    for_each_device([](Device device) {
      const Tensor w = full({2}, 3.0, {.device = device});
      const Tensor x = full({2}, 2.0, {.device = device});
      x.set_requires_grad();
      Graph inner(device);
      capture(inner, [&] { w.add_(1.0); });
      Graph outer(device);
      capture(outer, [&] { inner.replay(); });
      const Tensor loss = (x * w).sum();
      outer.replay();
      CHECK_THROWS_AS(loss.backward(), GradError);
    });
  }
}

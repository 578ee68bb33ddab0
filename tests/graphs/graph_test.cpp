#include "graphs/graph.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "autograd/arithmetic.h"
#include "autograd/engine.h"
#include "autograd/reduce.h"
#include "framework/core/counters.h"
#include "graphs/capture_scope.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;
using doctest::Contains;

namespace {

bool pool_exists(Device device, std::uint64_t id) {
  for (const PoolReport& pool : allocator(device).stats().pools) {
    if (pool.id == id) return true;
  }
  return false;
}

}  // namespace

TEST_SUITE("graphs/graph") {
  TEST_CASE("a capture runs nothing, and a replay runs what was captured") {
    for_each_device([](Device device) {
      const Tensor x = full({4}, 1.0, {.device = device});
      const Tensor y = zeros({4}, {.device = device});
      Graph graph(device);
      capture(graph, [&] { y.copy_(x * 2.0); });
      check_close(y, {0, 0, 0, 0}, 0.0);
      CHECK(graph.replay_count() == 0);

      x.fill_(3.0);
      const std::int64_t replays_before = counters().replays;
      graph.replay();
      check_close(y, {6, 6, 6, 6}, 0.0);
      x.fill_(-1.0);
      graph.replay();
      check_close(y, {-2, -2, -2, -2}, 0.0);
      CHECK(graph.replay_count() == 2);
      CHECK(counters().replays - replays_before == 2);
    });
  }

  TEST_CASE("an empty graph refuses everything but a capture") {
    for_each_device([](Device device) {
      Graph graph(device, {.name = "g"});
      const auto empty_graph = Contains("graph \"g\" is empty");
      CHECK_THROWS_WITH_AS(graph.replay(), empty_graph, StateError);
      CHECK_THROWS_WITH_AS(graph.capture_end(), empty_graph, StateError);
      CHECK_THROWS_WITH_AS(graph.instantiate(), empty_graph, StateError);
      CHECK_THROWS_WITH_AS((void)graph.pool(), empty_graph, StateError);
      CHECK_THROWS_WITH_AS((void)graph.recording(), empty_graph, StateError);
      CHECK_THROWS_WITH_AS((void)graph.to_dot(), empty_graph, StateError);
      graph.abandon();
      graph.reset();
      CHECK_FALSE(graph.is_ready());
    });
  }

  TEST_CASE("misuse while capturing is refused and the capture goes on") {
    for_each_device([](Device device) {
      const Tensor x = ones({3}, {.device = device});
      Graph graph(device, {.name = "g"});
      const Stream side = Stream::create(device);
      side.wait_stream(current_stream(device));
      {
        const StreamGuard guard(side);
        graph.capture_begin();
        x.add_(1.0);
        const auto capturing = Contains("graph \"g\" is capturing");
        CHECK_THROWS_WITH_AS(graph.capture_begin(), capturing, StateError);
        CHECK_THROWS_WITH_AS(graph.replay(), capturing, StateError);
        CHECK_THROWS_WITH_AS(graph.instantiate(), capturing, StateError);
        CHECK_THROWS_WITH_AS((void)graph.pool(), capturing, StateError);
        {
          const StreamGuard other(Stream::create(device));
          CHECK_THROWS_WITH_AS(graph.capture_end(), Contains("is current; make stream"),
                               CaptureError);
        }
        x.add_(1.0);
        graph.capture_end();
      }
      CHECK(graph.recording().operations.size() == 2);
      graph.replay();
      check_close(x, {3, 3, 3}, 0.0);
    });
  }

  TEST_CASE("a ready graph refuses another capture until reset") {
    for_each_device([](Device device) {
      const Tensor x = ones({3}, {.device = device});
      Graph graph(device, {.name = "g"});
      capture(graph, [&] { x.add_(1.0); });
      CHECK_THROWS_WITH_AS(capture(graph, [&] { x.add_(5.0); }),
                           Contains("graph \"g\" already holds a captured graph; call reset()"),
                           StateError);
      CHECK_THROWS_WITH_AS(graph.instantiate(), Contains("keep_graph"), StateError);
      graph.replay();
      check_close(x, {2, 2, 2}, 0.0);
    });
  }

  TEST_CASE("keep_graph instantiates when asked, and again") {
    for_each_device([](Device device) {
      const Tensor x = ones({3}, {.device = device});
      Graph graph(device, {.name = "g", .keep_graph = true});
      capture(graph, [&] { x.add_(1.0); });
      CHECK_FALSE(graph.is_ready());
      CHECK_THROWS_WITH_AS(graph.replay(), Contains("is not instantiated; call instantiate()"),
                           StateError);
      CHECK_THROWS_WITH_AS(capture(graph, [] {}), Contains("not instantiated; call reset()"),
                           StateError);
      graph.instantiate();
      graph.replay();
      graph.instantiate();
      graph.replay();
      check_close(x, {3, 3, 3}, 0.0);
    });
  }

  TEST_CASE("a capture cannot begin on the default stream, and leaves no trace there") {
    for_each_device([](Device device) {
      const std::size_t pools = allocator(device).stats().pools.size();
      Graph graph(device);
      CHECK_THROWS_WITH_AS(graph.capture_begin(), Contains("default stream"), CaptureError);
      CHECK_FALSE(is_current_stream_capturing(device));
      CHECK(allocator(device).stats().pools.size() == pools);
      const Tensor x = zeros({2}, {.device = device});
      capture(graph, [&] { x.add_(1.0); });
      graph.replay();
      check_close(x, {1, 1}, 0.0);
    });
  }

  TEST_CASE("a pool of another device is refused") {
    if (!needs_gpu()) return;
    Graph graph(Device::gpu());
    CHECK_THROWS_WITH_AS(capture(graph, [] {}, {.pool = graph_pool_handle(Device::cpu())}),
                         Contains("make a pool for gpu:0"), DeviceError);
  }

  TEST_CASE("ending a capture twice tells why the first end failed") {
    for_each_device([](Device device) {
      Graph graph(device, {.name = "g"});
      const Stream forked = Stream::create(device);
      const StreamGuard guard(Stream::create(device));
      graph.capture_begin();
      forked.wait_stream(current_stream(device));
      CHECK_THROWS_AS(graph.capture_end(), CaptureError);
      CHECK_THROWS_WITH_AS(graph.capture_end(), Contains("its last capture failed: capture_end: f"),
                           StateError);
    });
  }

  TEST_CASE("F2: reset gives the pool back and allows another capture") {
    for_each_device([](Device device) {
      const Tensor x = ones({1000}, {.device = device});
      Tensor y;
      Graph graph(device);
      capture(graph, [&] { y = x + 1.0; });
      const std::uint64_t first = graph.pool().id();
      graph.replay();
      y = Tensor();
      graph.reset();
      graph.reset();
      CHECK_FALSE(pool_exists(device, first));

      capture(graph, [&] { y = x * 5.0; });
      graph.replay();
      CHECK(y.slice(0, 0, 1).item() == 5.0);
      CHECK(graph.replay_count() == 1);
    });
  }

  TEST_CASE("F2: a graph destroyed while capturing ends its capture") {
    for_each_device([](Device device) {
      const StreamGuard guard(Stream::create(device));
      const Tensor x = ones({3}, {.device = device});
      {
        Graph graph(device);
        graph.capture_begin();
        x.add_(1.0);
      }
      CHECK_FALSE(is_current_stream_capturing(device));
      x.add_(1.0);
      check_close(x, {2, 2, 2}, 0.0);
    });
  }

  TEST_CASE("outputs outlive the graph that made them") {
    for_each_device([](Device device) {
      const Tensor x = full({4}, 2.0, {.device = device});
      Tensor y;
      std::uint64_t pool = 0;
      {
        Graph graph(device);
        capture(graph, [&] { y = x + 1.0; });
        graph.replay();
        pool = graph.pool().id();
      }
      check_close(y, {3, 3, 3, 3}, 0.0);
      CHECK(pool_exists(device, pool));
      y = Tensor();
      CHECK_FALSE(pool_exists(device, pool));
    });
  }

  TEST_CASE("H1: a graph keeps what it reads alive") {
    for_each_device([](Device device) {
      Tensor y;
      Graph graph(device);
      {
        const Tensor x = ones({4}, {.device = device});
        capture(graph, [&] { y = x * 2.0; });
      }
      const Tensor stranger = full({4}, 7.0, {.device = device});
      graph.replay();
      check_close(y, {2, 2, 2, 2}, 0.0);
      check_close(stranger, {7, 7, 7, 7}, 0.0);
    });
  }

  TEST_CASE("a view of a live tensor is read where it lies") {
    for_each_device([](Device device) {
      const Tensor x = zeros({4, 4}, {.device = device});
      Tensor y;
      Graph graph(device);
      capture(graph, [&] { y = x.transpose(0, 1).select(0, 2) + 1.0; });
      x.select(1, 2).fill_(5.0);
      graph.replay();
      check_close(y, {6, 6, 6, 6}, 0.0);
    });
  }

  TEST_CASE("an empty capture warns, naming the graph, and can be replayed") {
    for_each_device([](Device device) {
      const std::filesystem::path file =
          std::filesystem::temp_directory_path() / "capstan_empty_capture.txt";
      std::fflush(stderr);
      std::FILE* const saved = stderr;
      stderr = std::fopen(file.c_str(), "w");
      Graph graph(device, {.name = "idle"});
      capture(graph, [] {});
      std::fclose(std::exchange(stderr, saved));
      std::ifstream input(file);
      const std::string text{std::istreambuf_iterator<char>(input), {}};
      std::filesystem::remove(file);
      CHECK(text.find("graph \"idle\" captured no operation") != std::string::npos);
      CHECK(text.find('\n') == text.size() - 1);
      graph.replay();
      CHECK(graph.replay_count() == 1);
    });
  }

  TEST_CASE("I3, G6: graphs that share a pool share memory and replay in any order") {
    for_each_device([](Device device) {
      const GraphPool pool = graph_pool_handle(device, "shared");
      const std::int64_t n = 3 << 20;
      const Tensor x = full({n}, 1.0, {.device = device});
      const Tensor y = zeros({n}, {.device = device});
      const auto chain = [&](double factor) { y.copy_(((x + 1.0) * factor + 1.0) * 2.0); };
      Graph first(device);
      Graph second(device);
      capture(first, [&] { chain(2.0); }, {.pool = pool});
      const double reserved = static_cast<double>(pool.stats().reserved_bytes);
      capture(second, [&] { chain(3.0); }, {.pool = pool});
      CHECK(reserved > 0.0);
      CHECK(static_cast<double>(pool.stats().reserved_bytes) <= 1.1 * reserved);

      const auto value = [&] { return y.slice(0, n - 1, n).item(); };
      for (const bool takes_second : {false, true, true, false, true}) {
        (takes_second ? second : first).replay();
        CHECK(value() == (takes_second ? 14.0 : 10.0));
      }
    });
  }

  TEST_CASE("I3: replays on different streams follow one another") {
    for_each_device([](Device device) {
      const std::int64_t n = 1 << 20;
      const Tensor x = zeros({n}, {.device = device});
      const GraphPool pool = graph_pool_handle(device);
      Graph add(device);
      Graph twice(device);
      capture(add, [&] { x.copy_((x + 3.0) - 2.0); }, {.pool = pool});
      capture(twice, [&] { x.copy_((x + 4.0) - 2.0); }, {.pool = pool});
      const Stream streams[] = {Stream::create(device), Stream::create(device)};
      for (const Stream& stream : streams) stream.wait_stream(current_stream(device));
      for (int i = 0; i < 50; ++i) {
        const StreamGuard guard(streams[i % 2]);
        add.replay();
        const StreamGuard other(streams[(i + 1) % 2]);
        twice.replay();
      }
      for (const Stream& stream : streams) current_stream(device).wait_stream(stream);
      CHECK(x.max().item() == 150.0);
      CHECK((-x).max().item() == -150.0);
    });
  }

  TEST_CASE("a replay counts as a write of what was saved for backward") {
    for_each_device([](Device device) {
      const Tensor w = full({2}, 3.0, {.device = device});
      const Tensor x = full({2}, 2.0, {.device = device});
      x.set_requires_grad();
      Graph graph(device);
      capture(graph, [&] { w.add_(1.0); });
      const Tensor loss = (x * w).sum();
      graph.replay();
      CHECK_THROWS_AS(loss.backward(), GradError);
    });
  }
}

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "autograd/arithmetic.h"
#include "autograd/layout.h"
#include "framework/memory/pinned_buffer.h"
#include "framework/runtime/event.h"
#include "graphs/capture_scope.h"
#include "graphs/captured_step.h"
#include "ops/creation.h"
#include "tests/graphs/sibling_program.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;

TEST_SUITE("graphs/destruction") {
  TEST_CASE("F6: whatever is destroyed while a capture runs leaves it alone and is released") {
    for_each_device([](Device device) {
      const Tensor x = zeros({4}, {.device = device});
      const auto record = [&](const std::function<void()>& destroy) {
        Graph graph(device);
        capture(graph, [&] {
          x.add_(1.0);
          destroy();
          x.add_(10.0);
          const Tensor y = x * 2.0;
          destroy();
          x.copy_(y);
        });
        graph.replay();
        return graph.recording().operations.size();
      };
      const std::size_t alone = record([] {});
      (void)allocator(device).empty_cache();
      const AllocatorStats before = allocator(device).stats();

      std::optional<Graph> replayed(std::in_place, device);
      capture(*replayed, [&] { (void)dropout(x, 0.5); });
      replayed->replay();
      std::optional<Graph> fresh(std::in_place, device);
      capture(*fresh, [&] { x.add_(1.0); });
      std::optional<CapturedStep> step(std::in_place, device, [&] { return x * 1.0; });
      (void)(*step)();
      std::optional<Event> event(current_stream(device).record_event());
      std::optional<Stream> stream(Stream::create(device));
      (void)stream->record_event();
      std::optional<PinnedBuffer> pinned(std::in_place, device, 4096);
      Tensor common = ones({1 << 20}, {.device = device});
      Tensor borrowed;
      bool released = false;
      std::vector<float> memory(4);
      if (device.is_host()) {
        borrowed = from_blob(memory.data(), {4}, {}, [&] { released = true; });
      }
      int call = 0;
      CHECK(record([&] {
              if (call++ == 0) {
                replayed.reset();
                fresh.reset();
                event.reset();
                borrowed = Tensor();
              } else {
                step.reset();
                stream.reset();
                pinned.reset();
                common = Tensor();
              }
            }) == alone);
      CHECK(call == 2);
      CHECK(released == device.is_host());
      (void)allocator(device).empty_cache();
      const AllocatorStats after = allocator(device).stats();
      CHECK(after.pools.size() == before.pools.size());
      CHECK(after.total.reserved_bytes == before.total.reserved_bytes);
      CHECK(after.total.blocks == before.total.blocks);
    });
  }

  TEST_CASE(
      "F6: what a captured operation uses outlives its last handle, an event does not matter") {
    for_each_device([](Device device) {
      const Tensor x = zeros({4}, {.device = device});
      Graph graph(device);
      capture(graph, [&] {
        const Stream origin = current_stream(device);
        std::optional<Stream> side(Stream::create(device));
        std::optional<Event> fork(origin.record_event());
        side->wait_event(*fork);
        fork.reset();
        {
          const StreamGuard guard(*side);
          x.add_(1.0);
        }
        std::optional<Event> join(side->record_event());
        side.reset();
        origin.wait_event(*join);
        join.reset();
        x.mul_(3.0);
      });
      graph.replay();
      graph.replay();
      check_close(x, {12, 12, 12, 12}, 0.0);
    });
  }

  TEST_CASE("F6: another thread destroys what it has while this one captures") {
    for_each_device([](Device device) {
      const Tensor x = zeros({4}, {.device = device});
      Graph graph(device);
      capture(graph,
              [&] {
                x.add_(1.0);
                std::thread([&] {
                  Graph other(device);
                  const Tensor y = ones({300000}, {.device = device});
                  capture(other, [&] { (void)dropout(y, 0.5); },
                          {.error_mode = CaptureErrorMode::thread_local_});
                  other.replay();
                  const PinnedBuffer pinned(device, 64);
                  const Event event = Stream::create(device).record_event();
                }).join();
                x.add_(1.0);
              },
              {.error_mode = CaptureErrorMode::global});
      CHECK(graph.recording().operations.size() == 2);
      graph.replay();
      check_close(x, {2, 2, 2, 2}, 0.0);
      (void)allocator(device).empty_cache();
    });
  }

  TEST_CASE("a process ends cleanly with graphs and tensors in statics and thread-locals") {
    for (const char* way : {"return", "exit", "capturing"}) check_silent("exit_program", way);
  }
}

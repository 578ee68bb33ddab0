#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "autograd/arithmetic.h"
#include "autograd/reduce.h"
#include "framework/runtime/emulated_cpu.h"
#include "graphs/capture_scope.h"
#include "ops/creation.h"
#include "tests/graphs/forbidden_calls.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;

namespace {

const ForbiddenCall& listed(Forbidden call) {
  return forbidden_table()[static_cast<std::size_t>(call)];
}

}  // namespace

TEST_SUITE("graphs/error_mode") {
  TEST_CASE("J4: in the global mode another thread that waits is told who captures since where") {
    for_each_device([](Device device) {
      ForbiddenCalls scene(device);
      const Tensor y = zeros({1}, {.device = device});
      for (const ForbiddenCalls::Row& row : scene.rows()) {
        if (!listed(row.call).waits) continue;
        CAPTURE(row.operation);
        Graph graph(device);
        const Where here = Where::current();
        std::string text;
        capture(
            graph,
            [&] {
              y.add_(1.0);
              std::thread([&] { text = refusal([&] { row.make(here); }); }).join();
              y.sub_(1.0);
            },
            {.error_mode = CaptureErrorMode::global}, here);
        CHECK(text == detail::concat(
                          row.operation, ": not possible while thread ", std::this_thread::get_id(),
                          " captures on ", device, ", begun at ", place_of(here),
                          ", in the global error mode: there no thread may wait for the device or "
                          "ask it; do so after that capture, or capture with "
                          "CaptureErrorMode::thread_local_ (at ",
                          place_of(here), ")"));
        CHECK(graph.recording().operations.size() == 2);
        graph.replay();
        CHECK(y.item() == 0.0);
      }
    });
  }

  TEST_CASE("J4: in the thread-local and relaxed modes another thread may do everything") {
    for_each_device([](Device device) {
      const Tensor y = zeros({1}, {.device = device});
      for (const CaptureErrorMode mode :
           {CaptureErrorMode::thread_local_, CaptureErrorMode::relaxed}) {
        ForbiddenCalls scene(device);
        for (const ForbiddenCalls::Row& row : scene.rows()) {
          CAPTURE(row.operation);
          scene.other.reset();
          Graph graph(device);
          std::string text = "did not run";
          capture(
              graph,
              [&] {
                y.add_(1.0);
                std::thread([&] { text = refusal([&] { row.make(Where::current()); }); }).join();
                y.sub_(1.0);
              },
              {.error_mode = mode});
          CHECK(text == "");
          CHECK(graph.recording().operations.size() == 2);
          graph.replay();
          CHECK(y.item() == 0.0);
        }
      }
    });
  }

  TEST_CASE("J4: captures begin, fork and end while another thread waits for the device") {
    for_each_device([](Device device) {
      const Tensor x = zeros({256}, {.device = device});
      const Stream side = Stream::create(device);
      std::atomic<bool> done = false;
      std::thread other([&] {
        while (!done) synchronize(device);
      });
      int captured = 0;
      try {
        for (int round = 0; round < 100; ++round) {
          Graph graph(device);
          capture(graph,
                  [&] {
                    const Stream origin = current_stream(device);
                    side.wait_stream(origin);
                    {
                      const StreamGuard guard(side);
                      x.add_(1.0);
                    }
                    origin.wait_stream(side);
                  },
                  {.error_mode = CaptureErrorMode::thread_local_});
          graph.replay();
          ++captured;
        }
      } catch (const Error& error) {
        INFO(std::string(error.what()));
        CHECK(captured == 100);
      }
      done = true;
      other.join();
      CHECK(x.max().item() == captured);
      CHECK(captured == 100);
    });
  }

  TEST_CASE("another stream of the capturing thread may be waited for in the relaxed mode alone") {
    for_each_device([](Device device) {
      const Tensor x = ones({1}, {.device = device});
      const Stream other = Stream::create(device);
      other.wait_stream(current_stream(device));
      double value = 0.0;
      const auto read_beside = [&](CaptureErrorMode mode) {
        Graph graph(device);
        std::string text;
        capture(graph,
                [&] {
                  x.add_(1.0);
                  const StreamGuard guard(other);
                  text = refusal([&] { value = x.item(); });
                },
                {.error_mode = mode});
        CHECK(graph.recording().operations.size() == 1);
        return text;
      };
      CHECK(read_beside(CaptureErrorMode::relaxed) == "");
      CHECK(value == 1.0);
      for (const CaptureErrorMode mode :
           {CaptureErrorMode::global, CaptureErrorMode::thread_local_}) {
        const std::string text = read_beside(mode);
        CAPTURE(text);
        CHECK(text.find("item: not possible while this thread, ") == 0);
        CHECK(text.find("or capture with CaptureErrorMode::relaxed (at ") != std::string::npos);
      }
    });
  }

  TEST_CASE("a data loader on another thread runs on beside a capture in the global mode") {
    for_each_device([](Device device) {
      ForbiddenCalls scene(device);
      Graph graph(device);
      int batches = 0;
      capture(graph, [&] {
        scene.x.add_(1.0);
        std::thread([&] {
          for (const Batch& batch : scene.loader) batches += batch.inputs.defined() ? 1 : 0;
        }).join();
      });
      CHECK(batches == 2);
      CHECK(graph.recording().operations.size() == 1);
    });
  }

  TEST_CASE("a capture on one kind of device bars nobody from the other") {
    if (!needs_gpu()) return;
    const Tensor x = ones({1}, {.device = Device::gpu()});
    Graph graph;
    capture(graph, [&] { CHECK(x.item() == 1.0); });
  }

  TEST_CASE("the host may read another device than the one that captures, in the relaxed mode") {
    const Emulated emulated({.seed = test_seed()});
    const Device captured = Device::cpu(1);
    const Device beside = Device::cpu(2);
    const Tensor x = ones({2}, {.device = captured});
    const Tensor y = full({1}, 3.0, {.device = beside});
    Graph graph(captured);
    capture(graph,
            [&] {
              x.add_(y.item());
              CHECK(y.to_vector<double>() == std::vector<double>{3.0});
              CHECK_THROWS_WITH_AS(
                  y.add_(1.0),
                  doctest::Contains("add: device cpu:2 inside capture on device cpu:1"),
                  CaptureError);
            },
            {.error_mode = CaptureErrorMode::relaxed});
    CHECK(graph.recording().operations.size() == 1);
    graph.replay();
    check_close(x, {4.0, 4.0}, 0.0);
    const std::string text = [&] {
      std::string got;
      Graph strict(captured);
      capture(strict,
              [&] {
                got = refusal([&] { (void)y.item(); });
                x.add_(1.0);
              },
              {.error_mode = CaptureErrorMode::thread_local_});
      return got;
    }();
    CHECK(text.find("item: not possible while this thread, ") == 0);
  }

  TEST_CASE("a captured step bars no other thread while it records") {
    for_each_device([](Device device) {
      const Tensor x = ones({1}, {.device = device});
      double seen = 0.0;
      CapturedStep step(
          device,
          [&] {
            x.add_(1.0);
            std::thread([&] { seen = ones({2}, {.device = device}).sum().item(); }).join();
          },
          {.warmup = 0});
      step();
      CHECK(seen == 2.0);
      CHECK(x.item() == 2.0);
    });
  }
}

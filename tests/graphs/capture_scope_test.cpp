#include "graphs/capture_scope.h"

#include <stdexcept>
#include <string>
#include <thread>

#include "autograd/arithmetic.h"
#include "autograd/layout.h"
#include "autograd/reduce.h"
#include "framework/random/generator.h"
#include "framework/runtime/event.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;
using doctest::Contains;

namespace {

std::int64_t reserved(Device device) {
  (void)allocator(device).empty_cache();
  return allocator(device).stats().total.reserved_bytes;
}

// Nothing of a capture is left.
void check_idle(Device device, const Stream& stream) {
  CHECK(current_stream(device) == stream);
  CHECK_FALSE(is_current_stream_capturing(device));
  CHECK(detail::active_captures() == 0);
}

// A capture in `graph` works.
void check_works(Device device, Graph& graph) {
  graph.reset();
  const Tensor x = ones({2}, {.device = device});
  capture(graph, [&] { x.add_(1.0); });
  graph.replay();
  check_close(x, {2, 2}, 0.0);
}

}  // namespace

TEST_SUITE("graphs/capture_scope") {
  TEST_CASE("the scope's stream is current inside, and the old one afterwards") {
    for_each_device([](Device device) {
      const Stream before = current_stream(device);
      const Tensor x = zeros({2}, {.device = device});
      Graph graph(device);
      {
        CaptureScope scope(graph);
        CHECK(is_current_stream_capturing(device));
        CHECK_FALSE(current_stream(device) == before);
        x.add_(1.0);
        scope.finish();
        check_idle(device, before);
        CHECK_THROWS_WITH_AS(scope.finish(), Contains("has already ended"), StateError);
      }
      check_idle(device, before);
      graph.replay();
      check_close(x, {1, 1}, 0.0);
    });
  }

  TEST_CASE("a scope left without finish leaves an empty graph") {
    for_each_device([](Device device) {
      const Stream before = current_stream(device);
      const Tensor x = zeros({2}, {.device = device});
      Graph graph(device);
      {
        const CaptureScope scope(graph);
        x.add_(1.0);
      }
      check_idle(device, before);
      CHECK_THROWS_AS(graph.replay(), StateError);
      check_close(x, {0, 0}, 0.0);
      check_works(device, graph);
    });
  }

  TEST_CASE("the capture comes after what the old stream has queued") {
    for_each_device([](Device device) {
      const Tensor x = zeros({1 << 20}, {.device = device});
      for (int i = 0; i < 100; ++i) x.add_(1.0);
      Graph graph(device);
      capture(graph, [&] { x.mul_(2.0); });
      graph.replay();
      CHECK(x.max().item() == 200.0);
    });
  }

  TEST_CASE("K1: an exception of the body comes out unchanged and everything is restored") {
    for_each_device([](Device device) {
      const Stream before = current_stream(device);
      const Tensor x = zeros({2}, {.device = device});
      Graph graph(device);
      CHECK_THROWS_WITH_AS(capture(graph,
                                   [&] {
                                     x.add_(1.0);
                                     throw std::runtime_error("user 42");
                                   }),
                           "user 42", std::runtime_error);
      check_idle(device, before);
      check_close(x, {0, 0}, 0.0);
      check_works(device, graph);
    });
  }

  TEST_CASE("R3: an end that fails restores the stream") {
    for_each_device([](Device device) {
      const Stream before = current_stream(device);
      const Stream forked = Stream::create(device);
      Graph graph(device);
      CaptureScope scope(graph);
      forked.wait_stream(current_stream(device));
      CHECK_THROWS_AS(scope.finish(), CaptureError);
      check_idle(device, before);
      CHECK_FALSE(forked.is_capturing());
      check_works(device, graph);
    });
  }

  TEST_CASE("R3: an end under another current stream drops the capture") {
    for_each_device([](Device device) {
      const Stream before = current_stream(device);
      Graph graph(device);
      {
        CaptureScope scope(graph);
        const StreamGuard other(Stream::create(device));
        CHECK_THROWS_WITH_AS(scope.finish(), Contains("is current"), CaptureError);
      }
      check_idle(device, before);
      check_works(device, graph);
    });
  }

  TEST_CASE("R4: a begin that fails restores the stream") {
    for_each_device([](Device device) {
      const Stream before = current_stream(device);
      Graph graph(device);
      capture(graph, [&] { (void)zeros({2}, {.device = device}); });
      CHECK_THROWS_AS((CaptureScope{graph}), StateError);
      check_idle(device, before);
      check_works(device, graph);
    });
  }

  TEST_CASE("R4: a capture inside a capture is refused, and the outer one goes on") {
    for_each_device([](Device device) {
      const Tensor x = zeros({2}, {.device = device});
      Graph outer(device);
      Graph inner(device);
      const Stream own = Stream::create(device);
      own.wait_stream(current_stream(device));
      const StreamGuard guard(own);
      capture(outer, [&] {
        x.add_(1.0);
        const Stream side = current_stream(device);
        CHECK_THROWS_WITH_AS(capture(inner, [&] { x.add_(50.0); }),
                             Contains("a capture cannot begin inside another"), CaptureError);
        CHECK(current_stream(device) == side);
        x.add_(1.0);
      });
      outer.replay();
      check_close(x, {2, 2}, 0.0);
      check_works(device, inner);
    });
  }

  TEST_CASE("F1: a failed capture leaves nothing behind, wherever it fails") {
    for_each_device([](Device device) {
      const Tensor x = ones({64, 64}, {.device = device});
      const Generator generator = default_generator(device);
      Graph graph(device);
      const auto body = [&](int failing_step) {
        Tensor y = x;
        for (int step = 0; step < 5; ++step) {
          if (step == failing_step) throw std::runtime_error("step");
          y = dropout(y, 0.5) + rand({1024, 1024}, {.device = device}).sum();
        }
      };
      const Stream forked = Stream::create(device);
      const auto fail = [&](int point) {
        if (point < 5) {
          CHECK_THROWS_AS(capture(graph, [&] { body(point); }), std::runtime_error);
        } else if (point == 5) {
          CHECK_THROWS_AS(capture(graph,
                                  [&] {
                                    body(9);
                                    forked.wait_stream(current_stream(device));
                                  }),
                          CaptureError);
        } else {
          CHECK_THROWS_AS(graph.capture_begin(), CaptureError);
        }
      };
      const Stream before = current_stream(device);
      fail(2);  // whatever libraries keep is there from here on
      const std::int64_t baseline = reserved(device);
      const GeneratorState state = generator.state();
      for (int round = 0; round < 100; ++round) {
        fail(round % 7);
        REQUIRE(reserved(device) == baseline);
      }
      CHECK(generator.state() == state);
      CHECK(allocator(device).stats().pools.size() == 1);
      check_idle(device, before);
      check_works(device, graph);
    });
  }

  TEST_CASE("J2: a fork without a join is named with its last operation") {
    for_each_device([](Device device) {
      const Stream before = current_stream(device);
      const Stream forked = Stream::create(device);
      const Tensor x = zeros({2}, {.device = device});
      Graph graph(device);
      const auto body = [&] {
        x.add_(1.0);
        forked.wait_stream(current_stream(device));
        const StreamGuard guard(forked);
        x.mul_(2.0);
      };
      const std::string named = detail::concat("stream ", forked.id(), " (last operation: mul");
      CHECK_THROWS_WITH_AS(capture(graph, body), Contains(named.c_str()), CaptureError);
      check_idle(device, before);
      check_works(device, graph);
    });
  }

  TEST_CASE("J2: a section that came back is not blamed for a sibling that is still open") {
    for_each_device([](Device device) {
      const Stream before = current_stream(device);
      const Stream section = Stream::create(device);
      const Stream sibling = Stream::create(device);
      const Tensor x = zeros({2}, {.device = device});
      const Tensor y = zeros({2}, {.device = device});
      Graph graph(device);
      const auto on = [&](const Stream& stream, const Tensor& tensor) {
        stream.wait_stream(current_stream(device));
        const StreamGuard guard(stream);
        tensor.add_(1.0);
      };
      std::string text;
      try {
        capture(graph, [&] {
          on(sibling, y);
          on(section, x);
          current_stream(device).wait_stream(section);
        });
      } catch (const CaptureError& error) {
        text = error.what();
      }
      CHECK(text.find(detail::concat("not joined: stream ", sibling.id(), " (last")) !=
            std::string::npos);
      CHECK(text.find(detail::concat("stream ", section.id(), " (")) == std::string::npos);
      check_idle(device, before);
      check_works(device, graph);
    });
  }

  TEST_CASE("a fork that joins is part of the capture") {
    for_each_device([](Device device) {
      const Stream forked = Stream::create(device);
      const Tensor x = ones({1 << 16}, {.device = device});
      Tensor y;
      Graph graph(device);
      capture(graph, [&] {
        const Stream origin = current_stream(device);
        forked.wait_stream(origin);
        Tensor right;
        {
          const StreamGuard guard(forked);
          right = x * 3.0;
        }
        const Tensor left = x * 2.0;
        origin.wait_event(forked.record_event());
        y = left + right;
      });
      CHECK_FALSE(forked.is_capturing());
      for (int i = 0; i < 10; ++i) {
        x.add_(1.0);
        graph.replay();
        CHECK(y.max().item() == 5.0 * (i + 2));
      }
    });
  }

  TEST_CASE("two threads capture at once") {
    constexpr int kRounds = 50;
    const auto work = [&](double step) {
      const Tensor x = zeros({1000});
      for (int round = 0; round < kRounds; ++round) {
        Graph graph;
        CaptureScope scope(graph, {.error_mode = CaptureErrorMode::thread_local_});
        for (int i = 0; i < 20; ++i) x.add_(Tensor(ones({1000}) * step));
        scope.finish();
        if (graph.recording().operations.size() != 60) return -1.0;
        graph.replay();
      }
      return x.max().item();
    };
    double results[2] = {};
    std::thread other([&] { results[1] = work(2.0); });
    results[0] = work(1.0);
    other.join();
    CHECK(results[0] == 20.0 * kRounds);
    CHECK(results[1] == 40.0 * kRounds);
  }

  TEST_CASE("J4: another thread works on while one captures") {
    for_each_device([](Device device) {
      const Tensor x = zeros({256}, {.device = device});
      double sum = 0.0;
      Graph graph(device);
      capture(graph,
              [&] {
                for (int i = 0; i < 100; ++i) x.add_(1.0);
                std::thread other([&] {
                  const StreamGuard guard(Stream::create(device));
                  for (int i = 0; i < 50; ++i) {
                    sum += (ones({300000}, {.device = device}) * 2.0).mean().item();
                  }
                });
                other.join();
                for (int i = 0; i < 100; ++i) x.add_(1.0);
              },
              {.error_mode = CaptureErrorMode::thread_local_});
      CHECK(graph.recording().operations.size() == 200);
      CHECK(graph.pool().stats().peak_reserved_bytes == 0);  // none of the other thread's memory
      CHECK(sum == 100.0);
      graph.replay();
      CHECK(x.max().item() == 200.0);
    });
  }
}

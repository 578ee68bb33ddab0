#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "autograd/arithmetic.h"
#include "autograd/layout.h"
#include "autograd/reduce.h"
#include "framework/memory/caching_allocator.h"
#include "framework/random/generator.h"
#include "graphs/capture_scope.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;

namespace {

constexpr std::int64_t kCount = 1000;
constexpr double kSum = 1000.0;
constexpr const char* kSchedule = "the values follow from a forbidden order, or from sizes alone";

// Plain segments while it lives, whose sizes are known.
class PlainSegments {
 public:
  explicit PlainSegments(Device device)
      : device_(device), before_(allocator(device).has_growable_segments()) {
    allocator(device).set_growable_segments(false);
  }
  ~PlainSegments() { allocator(device_).set_growable_segments(before_); }
  PlainSegments(const PlainSegments&) = delete;
  PlainSegments& operator=(const PlainSegments&) = delete;

 private:
  Device device_;
  bool before_;
};

Tensor with_temporaries(const Tensor& t, double value) {
  const Tensor x = t.clone() + value;
  const Tensor y = t.clone() + value;
  return x + y;
}

PoolStats stats_of(Device device, std::uint64_t id) {
  for (const PoolReport& pool : allocator(device).stats().pools) {
    if (pool.id == id) return pool.stats;
  }
  return {};
}

}  // namespace

TEST_SUITE("graphs/golden") {
  TEST_CASE("graph_capture_simple: ten additions to ones give 11000") {
    for_each_device([](Device device) {
      const Tensor a = ones({kCount}, {.device = device});
      Tensor b;
      Graph graph(device);
      capture(graph, [&] {
        b = a.clone();
        for (int i = 0; i < 10; ++i) b.add_(1.0);
      });
      graph.replay();
      CHECK(b.sum().item() == 11000.0);
    });
  }

  TEST_CASE("graph_two_successive: two graphs in a row, with eager work, give 3070 and 442") {
    for_each_device([](Device device) {
      const Tensor a = ones({kCount}, {.device = device});
      for (const bool shares : {false, true}) {
        Tensor b;
        Tensor c = with_temporaries(a, 3.0);
        Graph first(device);
        Graph second(device);
        capture(first, [&] {
          b = a.clone();
          for (int i = 0; i < 5; ++i) b = with_temporaries(b, 1.0);
        });
        capture(second,
                [&] {
                  for (int i = 0; i < 5; ++i) b = with_temporaries(b, 1.0);
                  for (int i = 0; i < 5; ++i) c = with_temporaries(c, 3.0);
                },
                {.pool = shares ? first.pool() : GraphPool()});
        for (int i = 0; i < 2; ++i) {
          first.replay();
          (void)with_temporaries(a, 100.0);
          second.replay();
          CHECK(b.sum().item() == 3070.0 * kSum);
          CHECK(c.sum().item() == 442.0 * kSum);
        }
      }
    });
  }

  TEST_CASE("graph_three_successive: a shared pool asks for the order of the captures") {
    for_each_device(
        [](Device device) {
          const Tensor a = ones({kCount}, {.device = device});
          for (const bool shares : {false, true}) {
            const GraphPool pool = graph_pool_handle(device);
            const CaptureOptions options{.pool = shares ? pool : GraphPool()};
            std::array<Graph, 3> graphs{Graph(device), Graph(device), Graph(device)};
            Tensor b;
            Tensor e;
            Tensor f;
            capture(
                graphs[0], [&] { b = a + 1.0; }, options);
            capture(
                graphs[1],
                [&] {
                  e = b + 3.0;
                  b = Tensor();
                },
                options);
            capture(
                graphs[2], [&] { f = a * 7.0; }, options);
            for (const int i : {0, 1, 2}) graphs[static_cast<std::size_t>(i)].replay();
            CHECK(e.sum().item() == 5.0 * kSum);
            CHECK(f.sum().item() == 7.0 * kSum);
            for (const int i : {0, 2, 1}) graphs[static_cast<std::size_t>(i)].replay();
            CHECK(e.sum().item() == (shares ? 10.0 : 5.0) * kSum);
            CHECK(f.sum().item() == 7.0 * kSum);
          }
        },
        kSchedule);
  }

  TEST_CASE("graph_memory_stats_and_use_result_after_destroy_graph") {
    for_each_device(
        [](Device device) {
          constexpr std::int64_t kMiB = 1 << 20;
          struct Row {
            std::int64_t bytes;
            std::int64_t segments;
            std::int64_t segment_bytes;
          };
          const PlainSegments plain(device);
          for (const Row& row :
               {Row{512, 1, 2 * kMiB}, Row{kMiB, 2, 2 * kMiB}, Row{kMiB + 512, 1, 20 * kMiB},
                Row{10 * kMiB - 512, 2, 20 * kMiB}, Row{10 * kMiB + 512, 3, 12 * kMiB}}) {
            CAPTURE(row.bytes);
            const Tensor a = ones({row.bytes / 4}, {.device = device});
            Tensor b;
            Graph graph(device);
            capture(graph, [&] {
              b = a.clone();
              for (int i = 0; i < 5; ++i) b = b.clone() + 1.0;
            });
            graph.replay();
            const std::uint64_t pool = graph.pool().id();
            CHECK(stats_of(device, pool).segments == row.segments);
            CHECK(stats_of(device, pool).reserved_bytes == row.segments * row.segment_bytes);
            CHECK(stats_of(device, pool).allocated_bytes == row.bytes);
            graph.reset();
            CHECK(stats_of(device, pool).segments == 1);
            CHECK(b.mean().item() == 6.0);
            b = Tensor();
            CHECK(stats_of(device, pool).segments == 0);
          }
        },
        kSchedule);
  }

  TEST_CASE("rng_functional: graphed and eager draws interleave as if all were eager") {
    for_each_device([](Device device) {
      const Generator generator = default_generator(device);
      const Tensor x = ones({kCount}, {.device = device});
      Tensor y;
      const auto twice = [&] { y = dropout(dropout(x, 0.3), 0.3); };
      Graph graph(device);
      capture(graph, twice);
      const Tensor graphed = y;
      for (const std::uint64_t seed : {5, 6, 128, 9999}) {
        manual_seed(seed);
        std::vector<Tensor> want;
        for (int i = 0; i < 3; ++i) {
          twice();
          want.push_back(y);
        }
        const GeneratorState after = generator.state();
        manual_seed(seed);
        graph.replay();
        check_identical(graphed, want[0]);
        twice();
        check_identical(y, want[1]);
        graph.replay();
        check_identical(graphed, want[2]);
        CHECK(generator.state() == after);
      }
    });
  }

  TEST_CASE("rng_distributions: a capture leaves values alone, replays draw what eager would") {
    for_each_device([](Device device) {
      const Generator generator = default_generator(device);
      const Tensor filled = zeros({kCount}, {.device = device});
      std::array<Tensor, 2> made;
      const auto draw = [&] {
        made = {rand({kCount}, {.device = device}), randn({kCount}, {.device = device})};
        ops::normal(filled, 1.0, 2.0, generator);
      };
      Graph graph(device);
      capture(graph, draw);
      check_identical(filled, zeros({kCount}, {.device = device}));
      const std::array<Tensor, 2> graphed = made;
      for (const std::uint64_t seed : {6, 314, 271}) {
        manual_seed(seed);
        for (int i = 0; i < 3; ++i) draw();
        const Tensor want = filled.clone();
        manual_seed(seed);
        for (int i = 0; i < 3; ++i) graph.replay();
        check_identical(filled, want);
        for (std::size_t i = 0; i < 2; ++i) check_identical(graphed[i], made[i]);
      }
    });
  }

  TEST_CASE("several generators: each replay moves each one, as far as eager would") {
    for_each_device([](Device device) {
      const Generator one(1, device);
      const Generator two(2, device);
      const Tensor x = zeros({kCount}, {.device = device});
      const Tensor y = zeros({kCount}, {.device = device});
      const auto draw = [&] {
        ops::normal(x, 0.0, 1.0, one);
        ops::normal(y, 0.0, 1.0, two);
        ops::normal(y, 0.0, 1.0, two);
      };
      const std::int64_t blocks = stats_of(device, 0).blocks;
      Graph graph(device);
      capture(graph, draw);
      CHECK(stats_of(device, 0).blocks == blocks + 2);
      draw();
      draw();
      const Tensor want_x = x.clone();
      const Tensor want_y = y.clone();
      const std::array<GeneratorState, 2> after{one.state(), two.state()};
      one.manual_seed(1);
      two.manual_seed(2);
      graph.replay();
      graph.replay();
      check_identical(x, want_x);
      check_identical(y, want_y);
      CHECK(one.state() == after[0]);
      CHECK(two.state() == after[1]);
    });
  }
}

#include <doctest/doctest.h>

#include <cstdint>
#include <thread>

#include "capstan.h"
#include "framework/memory/block_pool.h"
#include "tests/memory/fake_runtime.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

Tensor of_mib(std::int64_t size, Device device) {
  return empty({size * kMiB / 4}, {.device = device});
}

std::int64_t common_reserved(Device device) {
  return allocator(device).stats().pools.at(0).stats.reserved_bytes;
}

}  // namespace

TEST_SUITE("memory/pool_guard") {
  TEST_CASE("allocations of this thread come from the innermost guard's pool") {
    testing::for_each_device([](Device device) {
      const GraphPool outer = graph_pool_handle(device, "outer");
      const GraphPool inner = graph_pool_handle(device, "inner");
      CHECK(PoolGuard::current(device) == 0);
      {
        const PoolGuard first(outer);
        const Tensor a = of_mib(4, device);
        CHECK(outer.stats().allocated_bytes == 4 * kMiB);
        {
          const PoolGuard second(inner);
          const Tensor b = of_mib(4, device);
          CHECK(inner.stats().allocated_bytes == 4 * kMiB);
        }
        CHECK(PoolGuard::current(device) == outer.id());
        std::int64_t seen = -1;
        std::thread([&] {
          const Tensor c = of_mib(4, device);
          seen = outer.stats().allocated_bytes;
        }).join();
        CHECK(seen == 4 * kMiB);
      }
      CHECK(PoolGuard::current(device) == 0);
      CHECK(outer.stats().allocated_bytes == 0);
      const bool grows = allocator(device).has_growable_segments();
      CHECK(outer.stats().reserved_bytes == (grows ? 4 : 20) * kMiB);
    });
  }

  TEST_CASE("misuse is refused and changes nothing") {
    const Device device = Device::cpu();
    const GraphPool pool = graph_pool_handle(device);
    const GraphPool other = graph_pool_handle(device);
    CHECK_THROWS_WITH_AS(PoolGuard{GraphPool()}, doctest::Contains("the pool handle is empty"),
                         StateError);
    {
      const PoolGuard guard(pool);
      const PoolGuard between(other);
      CHECK_THROWS_WITH_AS(PoolGuard{pool}, doctest::Contains("already serves this thread"),
                           StateError);
      CHECK(PoolGuard::current(device) == other.id());
    }
    Graph graph(device);
    const Tensor x = zeros({1});
    capture(graph, [&] {
      CHECK_THROWS_WITH_AS(PoolGuard{pool}, doctest::Contains("pass the pool to the capture"),
                           CaptureError);
      x.add_(1.0);
    });
    graph.replay();
    CHECK(x.item() == 1.0);
  }

  TEST_CASE("a tensor outlives its pool's handle, and then the memory goes") {
    const Device device = Device::cpu();
    GraphPool pool = graph_pool_handle(device, "mine");
    const std::uint64_t id = pool.id();
    Tensor x;
    {
      const PoolGuard guard(pool);
      x = ones({100});
    }
    const std::size_t pools = allocator(device).stats().pools.size();
    pool = GraphPool();
    CHECK(x.slice(0, 99, 100).item() == 1.0);
    CHECK_THROWS_WITH_AS(allocator(device).retain_pool(id),
                         doctest::Contains("(\"mine\") is gone and its memory is on the way back"),
                         StateError);
    x = Tensor();
    CHECK(allocator(device).stats().pools.size() == pools - 1);
  }

  TEST_CASE("G11: a capture uses the memory of a warm-up in its pool again") {
    testing::for_each_device([](Device device) {
      const Tensor x = ones({kMiB * 4}, {.device = device});  // 16 MiB
      const auto body = [&] {
        const Tensor a = x + 1.0;
        const Tensor b = a * 2.0;
        const Tensor c = b + 1.0;
        return (a + b) + c;
      };
      const GraphPool pool = graph_pool_handle(device, "step");
      const std::int64_t common = common_reserved(device);
      Tensor y;
      Graph graph(device);
      const Stream side = Stream::create(device);
      side.wait_stream(current_stream(device));
      {
        const StreamGuard guard(side);
        {
          const PoolGuard memory(pool);
          for (int i = 0; i < 3; ++i) (void)body();
        }
        side.synchronize();
        const std::int64_t warm = pool.stats().reserved_bytes;
        graph.capture_begin({.pool = pool});
        y = body();
        graph.capture_end();
        CHECK(pool.stats().reserved_bytes == warm);
      }
      CHECK(common_reserved(device) == common);
      graph.replay();
      CHECK(y.slice(0, 0, 1).item() == 11.0);
    });
  }

  TEST_CASE("G11: a captured step leaves nothing of its warm-up in the common pool") {
    const Device device = Device::cpu();
    const Tensor x = ones({kMiB * 4}, {.device = device});
    (void)allocator(device).empty_cache();
    allocator(device).reset_peak_stats();
    const AllocatorStats before = allocator(device).stats();
    CapturedStep step(device,
                      [&] {
                        Tensor y = x;
                        for (int i = 0; i < 4; ++i) y = y + 1.0;
                        return y.slice(0, 0, 1).clone();
                      },
                      {.warmup = 3});
    CHECK(step().item() == 5.0);
    const AllocatorStats after = allocator(device).stats();
    CHECK(after.total.peak_reserved_bytes - before.total.reserved_bytes <= 83 * kMiB);
    (void)allocator(device).empty_cache();
    CHECK(common_reserved(device) <= before.pools.at(0).stats.reserved_bytes + 2 * kMiB);
  }

  TEST_CASE("memory that a graph uses is not handed out to a guard of its pool") {
    testing::for_each_device([](Device device) {
      const GraphPool pool = graph_pool_handle(device);
      const Stream side = Stream::create(device);
      const StreamGuard on_side(side);
      const Tensor x = zeros({kMiB / 4}, {.device = device});
      Graph graph(device);
      graph.capture_begin({.pool = pool});
      for (int i = 0; i < 3; ++i) x.add_(x + 1.0);
      graph.capture_end();
      const PoolGuard guard(pool);
      std::vector<Tensor> eager;
      for (int i = 0; i < 4; ++i) eager.push_back(full({kMiB / 4}, 9.0, {.device = device}));
      graph.replay();
      for (const Tensor& tensor : eager) CHECK(tensor.sum().item() == 9.0 * kMiB / 4);
    });
  }

  TEST_CASE("a tensor made in a graph's pool before the capture is kept by the graph") {
    testing::for_each_device([](Device device) {
      const GraphPool pool = graph_pool_handle(device);
      const Stream side = Stream::create(device);
      const StreamGuard on_side(side);
      const Tensor y = zeros({1000}, {.device = device});
      Tensor x;
      {
        const PoolGuard guard(pool);
        x = ones({1000}, {.device = device});
      }
      Graph graph(device);
      graph.capture_begin({.pool = pool});
      y.copy_(x * 2.0);
      x = Tensor();
      const Tensor z = zeros({1000}, {.device = device});
      graph.capture_end();
      for (int i = 0; i < 2; ++i) {
        y.zero_();
        graph.replay();
        CHECK(y.sum().item() == 2000.0);
      }
    });
  }
}

}  // namespace capstan

#include <doctest/doctest.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "capstan.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

std::int64_t reserved(Device device) { return allocator(device).stats().total.reserved_bytes; }

// Gives `body` a clean allocator; the bytes by which it made what is held from the device grow.
template <typename Body>
std::int64_t peak_of(Device device, const Body& body) {
  synchronize(device);
  (void)allocator(device).empty_cache();
  allocator(device).reset_peak_stats();
  const std::int64_t before = reserved(device);
  body();
  return allocator(device).stats().total.peak_reserved_bytes - before;
}

}  // namespace

TEST_SUITE("memory/graph_memory") {
  TEST_CASE("F3: a library's scratch memory belongs to no graph's pool") {
    testing::for_each_device([](Device device) {
      const Tensor a = testing::random_tensor({300, 300}, 1, DType::float32, device);
      const Tensor want = matmul(a, a);
      const Stream stream = Stream::create(device);
      stream.wait_stream(current_stream(device));
      const StreamGuard guard(stream);
      const Tensor y = zeros({300, 300}, {.device = device});
      const auto record = [&](Graph& graph) {
        graph.capture_begin();
        y.copy_(matmul(a, a));
        graph.capture_end();
      };
      Graph first(device);
      std::optional<Graph> second(std::in_place, device);
      record(first);
      record(*second);
      second.reset();
      (void)allocator(device).empty_cache();
      std::vector<Tensor> poison;
      for (int i = 0; i < 8; ++i) poison.push_back(full({kMiB}, 7.0, {.device = device}));
      first.replay();
      testing::check_close(y, want, testing::tolerance_for(DType::float32, device));
      for (const Tensor& x : poison) CHECK(sum(x).item() == 7.0 * kMiB);

      const std::int64_t held = reserved(device);
      const std::int64_t of_pool = first.pool().stats().allocated_bytes;
      for (int i = 0; i < 20; ++i) {
        Graph other(device);
        record(other);
      }
      CHECK(reserved(device) == held);
      const Tensor eager = matmul(a, a);
      CHECK(first.pool().stats().allocated_bytes == of_pool);
    });
  }

  TEST_CASE("F5: recording a step needs little more memory than running it, and a reset frees it") {
    testing::for_each_device([](Device device) {
      const Tensor x = ones({4 * kMiB}, {.device = device});
      std::vector<Tensor> weights;
      for (int i = 0; i < 4; ++i) {
        weights.push_back(full({1}, 1.5, {.device = device}));
        weights.back().set_requires_grad(true);
      }
      const auto train = [&] {
        for (const Tensor& w : weights) w.set_grad(Tensor());
        Tensor y = x;
        for (const Tensor& w : weights) y = y * w;
        const Tensor loss = sum(y);
        loss.backward();
        return loss.detach();
      };
      const std::int64_t eager = peak_of(device, train);
      CHECK(eager >= 64 * kMiB);
      CapturedStep step(device, train, {.warmup = 3});
      const std::int64_t recorded = peak_of(device, [&] { (void)step(); });
      CHECK(static_cast<double>(recorded) <= 1.25 * static_cast<double>(eager));
      GraphPool pool = step.pool();
      CHECK(pool.stats().reserved_bytes >= 64 * kMiB);
      step.reset();
      for (const Tensor& w : weights) w.set_grad(Tensor());  // made in the pool, so part of it
      CHECK(pool.stats().allocated_bytes == 0);
      const std::int64_t of_pool = pool.stats().reserved_bytes;
      const std::int64_t held = reserved(device);
      pool = GraphPool();
      CHECK(reserved(device) == held - of_pool);
      const double loss = train().item();
      CHECK(loss == step().item());
    });
  }

  TEST_CASE("fifty graphs in a row, each with a pool of its own, cost the same memory each") {
    testing::for_each_device([](Device device) {
      const Tensor x = ones({kMiB}, {.device = device});
      synchronize(device);
      (void)allocator(device).empty_cache();
      const std::int64_t before = reserved(device);
      std::vector<std::int64_t> added;
      std::deque<Graph> graphs;
      for (int i = 0; i < 50; ++i) {
        const std::int64_t held = reserved(device);
        graphs.emplace_back(device);
        capture(graphs.back(), [&] {
          Tensor y = x;
          for (int k = 0; k < 5; ++k) y = y + 1.0;
        });
        added.push_back(reserved(device) - held);
      }
      CHECK(added.front() >= 8 * kMiB);
      for (const std::int64_t bytes : added) CHECK(bytes == added.front());
      graphs.clear();
      (void)allocator(device).empty_cache();
      CHECK(reserved(device) == before);
    });
  }
}

}  // namespace capstan

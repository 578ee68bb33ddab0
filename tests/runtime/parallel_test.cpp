#include "framework/runtime/parallel.h"

#include <doctest/doctest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "framework/core/error.h"

using namespace capstan;

TEST_SUITE("runtime/parallel") {
  TEST_CASE("every index is visited once, for any count and grain") {
    for (const std::int64_t count : {0, 1, 2, 7, 1000, 65537}) {
      for (const std::int64_t grain : {1, 3, 1000, 100000}) {
        std::vector<int> visits(static_cast<std::size_t>(count), 0);
        cpu::parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
        });
        bool once = true;
        for (const int v : visits) once = once && v == 1;
        CHECK(once);
      }
    }
  }

  TEST_CASE("the split depends on count, grain and threads alone") {
    const auto ranges = [](std::int64_t count) {
      std::mutex mutex;
      std::set<std::pair<std::int64_t, std::int64_t>> seen;
      cpu::parallel_for(count, 10, [&](std::int64_t begin, std::int64_t end) {
        const std::lock_guard lock(mutex);
        seen.emplace(begin, end);
      });
      return seen;
    };
    const auto first = ranges(1001);
    CHECK(static_cast<int>(first.size()) == cpu::num_threads());
    for (int round = 0; round < 20; ++round) CHECK(ranges(1001) == first);
    // A call from inside a body walks the same ranges, one after the other.
    std::set<std::pair<std::int64_t, std::int64_t>> nested;
    cpu::parallel_for(1, 1, [&](std::int64_t, std::int64_t) { nested = ranges(1001); });
    CHECK(nested == first);
  }

  TEST_CASE("several threads may call at once") {
    std::atomic<std::int64_t> total{0};
    const auto add = [&] {
      for (int round = 0; round < 200; ++round) {
        cpu::parallel_for(100, 1, [&](std::int64_t begin, std::int64_t end) {
          total.fetch_add(end - begin, std::memory_order_relaxed);
        });
      }
    };
    std::thread other(add);
    add();
    other.join();
    CHECK(total.load() == 2 * 200 * 100);
  }

  TEST_CASE("a thread count out of range is refused") {
    const int before = cpu::num_threads();
    CHECK_THROWS_WITH_AS(cpu::set_num_threads(0), doctest::Contains("got 0"), ValueError);
    CHECK(cpu::num_threads() == before);
  }
}

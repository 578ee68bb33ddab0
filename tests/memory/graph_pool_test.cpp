#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "framework/core/error.h"
#include "framework/memory/caching_allocator.h"
#include "framework/runtime/capture_session.h"
#include "tests/memory/fake_runtime.h"

namespace capstan {
namespace {

using testing::FakeRuntime;
using testing::kMiB;
using testing::kPlenty;
using testing::new_stream;

const PoolReport* report_of(const AllocatorStats& stats, std::uint64_t id) {
  for (const PoolReport& pool : stats.pools) {
    if (pool.id == id) return &pool;
  }
  return nullptr;
}

bool exists(const CachingAllocator& memory, std::uint64_t id) {
  return report_of(memory.stats(), id) != nullptr;
}

// A block of a private pool, as a capture allocates it.
Block* allocate_in(CachingAllocator& memory, std::uint64_t pool, std::size_t bytes,
                   const Stream& stream) {
  const Ref<CaptureSession> session = CaptureSession::begin(stream, {.pool = pool});
  Block* block = memory.allocate(bytes, stream.state());
  session->abandon();
  return block;
}

}  // namespace

TEST_SUITE("memory/graph_pool") {
  TEST_CASE("a request on a capturing stream comes from the pool of the capture") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream capturing = new_stream(fake);
    const Stream eager = new_stream(fake);
    const std::uint64_t pool = memory.create_pool("step");
    CHECK(pool != 0);
    Block* before = memory.allocate(512, capturing.state());
    const Ref<CaptureSession> session = CaptureSession::begin(capturing, {.pool = pool});
    Block* inside = memory.allocate(512, capturing.state());
    Block* beside = memory.allocate(512, eager.state());
    CHECK(CachingAllocator::pool_of(before) == 0);
    CHECK(CachingAllocator::pool_of(inside) == pool);
    CHECK(CachingAllocator::pool_of(beside) == 0);
    session->abandon();

    // Freed outside of the capture, the block still belongs to its pool.
    memory.free(inside);
    const AllocatorStats stats = memory.stats();
    REQUIRE(report_of(stats, pool) != nullptr);
    CHECK(report_of(stats, pool)->stats.reserved_bytes == 2 * static_cast<std::int64_t>(kMiB));
    CHECK(report_of(stats, pool)->stats.allocated_bytes == 0);
    Block* after = memory.allocate(512, capturing.state());
    CHECK(CachingAllocator::pool_of(after) == 0);
    for (Block* block : {before, beside, after}) memory.free(block);
    memory.release_pool(pool);
  }

  TEST_CASE("a capture with an unknown pool is refused") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    const Ref<CaptureSession> session = CaptureSession::begin(stream, {.pool = ~std::uint64_t{0}});
    CHECK_THROWS_WITH_AS((void)memory.allocate(512, stream.state()),
                         doctest::Contains("which does not exist on cpu; keep its GraphPool"),
                         StateError);
    session->abandon();
  }

  TEST_CASE("the last release gives free segments to the device, the rest at the last free") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    const std::uint64_t pool = memory.create_pool("step");
    memory.retain_pool(pool);
    Block* kept = allocate_in(memory, pool, 512, stream);
    memory.free(allocate_in(memory, pool, 30 * kMiB, stream));
    CHECK(fake.used() == 32 * kMiB);

    memory.release_pool(pool);
    CHECK(fake.used() == 32 * kMiB);
    CHECK(report_of(memory.stats(), pool)->use_count == 1);
    memory.release_pool(pool);
    CHECK(fake.used() == 2 * kMiB);
    CHECK(fake.synchronizations == 1);
    REQUIRE(exists(memory, pool));
    CHECK(report_of(memory.stats(), pool)->use_count == 0);
    memory.free(kept);
    CHECK(fake.used() == 0);
    CHECK_FALSE(exists(memory, pool));
    CHECK_THROWS_WITH_AS(memory.retain_pool(pool), doctest::Contains("retain_pool: no private"),
                         StateError);
  }

  TEST_CASE("a free that completes no segment of a released pool does not wait for the device") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    const std::uint64_t pool = memory.create_pool("step");
    Block* a = allocate_in(memory, pool, 512, stream);
    Block* b = allocate_in(memory, pool, 512, stream);
    memory.release_pool(pool);
    memory.free(a);
    CHECK(fake.synchronizations == 0);
    memory.free(b);
    CHECK(fake.synchronizations == 1);
    CHECK(fake.used() == 0);
  }

  TEST_CASE("nothing goes back to the device while any capture is in progress") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    const Stream other = new_stream(fake);
    const std::uint64_t pool = memory.create_pool("old");
    const std::uint64_t current = memory.create_pool("current");
    memory.free(allocate_in(memory, pool, 512, stream));

    Ref<CaptureSession> session = CaptureSession::begin(other, {.pool = current});
    memory.release_pool(pool);
    CHECK(memory.empty_cache().bytes == 0);
    memory.free(memory.allocate(512, stream.state()));
    CHECK(fake.synchronizations == 0);
    CHECK(exists(memory, pool));
    SUBCASE("a later request gives it back") {
      session->abandon();
      memory.free(memory.allocate(512, stream.state()));
    }
    SUBCASE("a later empty_cache gives it back") {
      session->abandon();
      (void)memory.empty_cache();
    }
    SUBCASE("a later release gives it back") {
      session->abandon();
      memory.release_pool(current);
    }
    CHECK_FALSE(exists(memory, pool));
    CHECK(fake.bad_deallocations == 0);
  }

  TEST_CASE("empty_cache leaves the segments of pools in use alone") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    const std::uint64_t pool = memory.create_pool("step");
    memory.free(allocate_in(memory, pool, 512, stream));
    CHECK(memory.empty_cache().bytes == 0);
    CHECK(fake.used() == 2 * kMiB);
  }

  TEST_CASE("out of memory in a capture does not touch the device and says why") {
    FakeRuntime fake(64 * kMiB);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    const std::uint64_t pool = memory.create_pool("step");
    memory.free(memory.allocate(40 * kMiB, stream.state()));
    const Ref<CaptureSession> session = CaptureSession::begin(stream, {.pool = pool});
    CHECK_THROWS_WITH_AS((void)memory.allocate(40 * kMiB, stream.state()),
                         doctest::Contains("call empty_cache before capturing"), OutOfMemory);
    CHECK(fake.synchronizations == 0);
    CHECK(fake.used() == 40 * kMiB);
    session->abandon();
  }

  TEST_CASE("handles share one pool, which ends with the last of them") {
    const auto known = [](std::uint64_t id) { return exists(allocator(Device::cpu()), id); };
    GraphPool first = graph_pool_handle(Device::cpu(), "shared");
    const std::uint64_t id = first.id();
    GraphPool second = first;
    CHECK(first == second);
    CHECK(first.stats().reserved_bytes == 0);
    first = graph_pool_handle(Device::cpu());
    CHECK_FALSE(first == second);
    CHECK(first.id() != id);
    CHECK(known(id));
    second = GraphPool();
    CHECK_FALSE(known(id));
    CHECK_FALSE(second);
    CHECK(second.id() == 0);
    CHECK(second.stats().segments == 0);
  }
}

}  // namespace capstan

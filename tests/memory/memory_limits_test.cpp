#include <doctest/doctest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "capstan.h"
#include "framework/runtime/capture_session.h"
#include "tests/memory/fake_runtime.h"
#include "tests/memory/faulty_runtime.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::FakeRuntime;
using testing::FaultyRuntime;
using testing::kMiB;
using testing::kPlenty;

Stream new_stream(DeviceRuntime& runtime) {
  return Stream(make_ref<StreamState>(runtime, nullptr, 0, false));
}

// Puts the limit of a real device back.
struct LimitRestored {
  explicit LimitRestored(Device where) : device(where) {}
  ~LimitRestored() { allocator(device).set_memory_limit(std::nullopt); }
  Device device;
};

}  // namespace

TEST_SUITE("memory/memory_limits") {
  TEST_CASE("a limit in bytes holds for what is held from the device") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    CHECK_FALSE(memory.memory_limit().has_value());
    memory.set_memory_limit(64 * kMiB);
    CHECK(memory.memory_limit() == 64 * kMiB);
    Block* block = memory.allocate(40 * kMiB, stream.state());
    const int calls = fake.allocate_calls;
    CHECK_THROWS_WITH_AS((void)memory.allocate(30 * kMiB, stream.state()),
                         doctest::Contains("and a limit of 64.0 MiB, 40.0 MiB of it held"),
                         OutOfMemory);
    CHECK(fake.allocate_calls == calls);  // the device was not asked
    memory.free(memory.allocate(24 * kMiB, stream.state()));
    memory.free(block);
    memory.free(memory.allocate(60 * kMiB, stream.state()));  // what was cached made room
    CHECK(fake.used() == 60 * kMiB);
    memory.set_memory_limit(kMiB);  // below what is held: only growth stops
    memory.free(memory.allocate(50 * kMiB, stream.state()));
    memory.set_memory_limit(std::nullopt);
    memory.free(memory.allocate(100 * kMiB, stream.state()));
  }

  TEST_CASE("a limit as a fraction of the device, with its domain") {
    FakeRuntime fake(100 * kMiB);
    CachingAllocator memory(fake);
    memory.set_memory_fraction(0.25);
    CHECK(memory.memory_limit() == 25 * kMiB);
    memory.set_memory_fraction(1.0);
    CHECK_FALSE(memory.memory_limit().has_value());
    for (const double wrong : {0.0, -0.5, 1.5, std::nan("")}) {
      CHECK_THROWS_WITH_AS(memory.set_memory_fraction(wrong),
                           doctest::Contains("the fraction must be above 0 and at most 1, got"),
                           ValueError);
    }
    CHECK_THROWS_WITH_AS(memory.set_memory_limit(std::size_t{0}),
                         doctest::Contains("set_memory_limit: a limit must be at least 1 byte"),
                         ValueError);
  }

  TEST_CASE("G10: out of memory lists pools with what is in use, cached and in one piece") {
    FakeRuntime fake(64 * kMiB);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    const Stream other = new_stream(fake);
    const std::uint64_t pool = memory.create_pool("fwd");
    Ref<CaptureSession> session = CaptureSession::begin(stream, {.pool = pool});
    Block* captured = memory.allocate(32 * kMiB, stream.state());
    session->abandon();
    for (const PoolReport& report : memory.stats().pools) {
      if (report.name == "fwd") CHECK(report.stats.reserved_bytes == 32 * std::int64_t{kMiB});
    }
    Block* used_elsewhere = memory.allocate(2 * kMiB, stream.state());
    Block* kept = memory.allocate(3 * kMiB, stream.state());
    memory.record_stream(used_elsewhere, other.state());
    fake.shut(other);
    memory.free(used_elsewhere);
    memory.free(captured);
    CHECK_THROWS_WITH_AS(
        (void)memory.allocate(40 * kMiB, stream.state()),
        "allocator: out of memory on cpu, asked for 40.0 MiB with 12.0 MiB of 64.0 MiB free; "
        "pools: "
        "\"common\" 5.0 MiB in use, 15.0 MiB cached (largest free block 15.0 MiB); \"fwd\" 0 B in "
        "use, 32.0 MiB cached (largest free block 32.0 MiB); freed, but still used by other "
        "streams: 2.0 MiB; use smaller batches or drop graphs and tensors that are no longer "
        "needed",
        OutOfMemory);
    fake.open(other);
    memory.free(kept);
    memory.release_pool(pool);
    CHECK(memory.empty_cache().bytes == 20 * kMiB);
  }

  TEST_CASE("G3: a shortage in a capture frees nothing and says what could be") {
    FakeRuntime fake(64 * kMiB);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    const Stream capturing = new_stream(fake);
    const std::uint64_t pool = memory.create_pool("step");
    memory.free(memory.allocate(60 * kMiB, stream.state()));
    const Ref<CaptureSession> session = CaptureSession::begin(capturing, {.pool = pool});
    CHECK_THROWS_WITH_AS(
        (void)memory.allocate(32 * kMiB, capturing.state()),
        doctest::Contains(
            "a capture is in progress, so cached memory could not be given back: call "
            "empty_cache before capturing, which could free 60.0 MiB"),
        OutOfMemory);
    // An eager request of another stream must not free either.
    CHECK_THROWS_AS((void)memory.allocate(62 * kMiB, stream.state()), OutOfMemory);
    CHECK(fake.deallocate_calls == 0);
    CHECK(fake.synchronizations == 0);
    session->abandon();
    const Ref<CaptureSession> again = CaptureSession::begin(capturing, {.pool = pool});
    again->abandon();
    CHECK(memory.empty_cache().bytes == 60 * kMiB);
    memory.release_pool(pool);
  }

  TEST_CASE("empty_cache says what it kept and why") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    const std::uint64_t pool = memory.create_pool("step");
    const Ref<CaptureSession> session = CaptureSession::begin(stream, {.pool = pool});
    memory.free(memory.allocate(30 * kMiB, stream.state()));
    const CacheEmptied during = memory.empty_cache();
    CHECK(during.bytes == 0);
    CHECK(during.capturing);
    CHECK(during.kept_in_pools == 30 * kMiB);
    CHECK(during.reason() == "nothing was given back, since a capture is in progress");
    session->abandon();
    Block* block = memory.allocate(512 * 1024, stream.state());
    memory.free(memory.allocate(40 * kMiB, stream.state()));
    const CacheEmptied after = memory.empty_cache();
    CHECK(after.bytes == 40 * kMiB);
    CHECK_FALSE(after.capturing);
    CHECK(after.reason() == "1.5 MiB in segments with live blocks; 30.0 MiB in private pools");
    memory.free(block);
    memory.release_pool(pool);
    CHECK(memory.empty_cache().reason().empty());
  }

  TEST_CASE("an observer hears of a shortage, without the lock, until it is removed") {
    FakeRuntime fake(10 * kMiB);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    std::vector<Shortage> heard;
    const int id = memory.add_shortage_observer([&](const Shortage& shortage) {
      heard.push_back(shortage);
      (void)memory.stats();  // would hang if the lock were held
    });
    CHECK_THROWS_AS((void)memory.allocate(11 * kMiB, stream.state()), OutOfMemory);
    REQUIRE(heard.size() == 1);
    CHECK(heard[0].requested == 11 * kMiB);
    CHECK(heard[0].memory.total_bytes == 10 * kMiB);
    CHECK(heard[0].message.find("asked for 11.0 MiB") != std::string::npos);
    CHECK(heard[0].stats.pools.size() == 1);
    memory.remove_shortage_observer(id);
    CHECK_THROWS_AS((void)memory.allocate(11 * kMiB, stream.state()), OutOfMemory);
    CHECK(heard.size() == 1);
  }

  TEST_CASE("whichever request to the device fails, it is retried once and then out of memory") {
    for (int round = 0; round < 12; ++round) {
      const int k = round % 6 + 1;
      FaultyRuntime faulty(runtime(Device::cpu()), 100 * kMiB, round >= 6);
      {
        CachingAllocator memory(faulty);
        const Stream stream = new_stream(faulty);
        faulty.fail_allocation(k);
        std::vector<Block*> blocks;
        for (int i = 0; i < 6; ++i) blocks.push_back(memory.allocate(12 * kMiB, stream.state()));
        CHECK(faulty.calls() == 7);
        CHECK_THROWS_AS((void)memory.allocate(40 * kMiB, stream.state()), OutOfMemory);
        CHECK(memory.stats().total.reserved_bytes == static_cast<std::int64_t>(faulty.used()));
        for (Block* block : blocks) memory.free(block);
        CHECK(memory.empty_cache().bytes == 72 * kMiB);
        CHECK(memory.stats().total.blocks == 0);
      }
      CHECK(faulty.live_segments() == 0);
    }
  }

  TEST_CASE("F1: a capture that runs out of memory at any request leaves nothing behind") {
    const Device device = Device::cpu();
    CachingAllocator& memory = allocator(device);
    const LimitRestored restored(device);
    const Tensor x = ones({std::int64_t{3} << 20}, {.device = device});  // 12 MiB
    (void)memory.empty_cache();
    const AllocatorStats before = memory.stats();
    const auto baseline = static_cast<std::size_t>(before.total.reserved_bytes);
    const auto body = [&] {
      Tensor y = x;
      std::vector<Tensor> kept;
      for (int i = 0; i < 5; ++i) kept.push_back(y = y + 1.0);
      return y;
    };
    for (int round = 0; round < 100; ++round) {
      memory.set_memory_limit(baseline + static_cast<std::size_t>(round % 5) * 12 * kMiB);
      Graph graph(device);
      CHECK_THROWS_AS(capture(graph, [&] { (void)body(); }), OutOfMemory);
      REQUIRE_FALSE(is_current_stream_capturing(device));
      const AllocatorStats after = memory.stats();
      REQUIRE(after.pools.size() == before.pools.size());
      REQUIRE(after.total.reserved_bytes == before.total.reserved_bytes);
      REQUIRE(after.total.allocated_bytes == before.total.allocated_bytes);
    }
    memory.set_memory_limit(std::nullopt);
    Graph graph(device);
    Tensor y;
    capture(graph, [&] { y = body(); });
    graph.replay();
    CHECK(y.slice(0, 0, 1).item() == 6.0);
  }
}

}  // namespace capstan

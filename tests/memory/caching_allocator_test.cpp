#include "framework/memory/caching_allocator.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "framework/core/counters.h"
#include "framework/core/error.h"
#include "framework/memory/block_pool.h"
#include "tests/memory/fake_runtime.h"

namespace capstan {
namespace {

using testing::FakeRuntime;
using testing::kMiB;
using testing::kPlenty;
using testing::new_stream;

bool same(const PoolStats& a, const PoolStats& b) {
  return a.allocated_bytes == b.allocated_bytes && a.reserved_bytes == b.reserved_bytes &&
         a.requested_bytes == b.requested_bytes && a.blocks == b.blocks && a.segments == b.segments;
}

bool adds_up(const AllocatorStats& stats, const FakeRuntime& fake) {
  PoolStats sum;
  for (const PoolReport& pool : stats.pools) {
    sum.allocated_bytes += pool.stats.allocated_bytes;
    sum.reserved_bytes += pool.stats.reserved_bytes;
    sum.requested_bytes += pool.stats.requested_bytes;
    sum.blocks += pool.stats.blocks;
    sum.segments += pool.stats.segments;
  }
  return same(sum, stats.total) &&
         static_cast<std::size_t>(stats.total.reserved_bytes) == fake.used() &&
         static_cast<std::size_t>(stats.total.segments) == fake.live_segments();
}

std::string message_of(CachingAllocator& memory, std::size_t bytes, const Stream& stream) {
  try {
    (void)memory.allocate(bytes, stream.state());
  } catch (const OutOfMemory& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_SUITE("memory/caching_allocator") {
  TEST_CASE("zero bytes are a null block, which may be freed") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    Block* block = memory.allocate(0, stream.state());
    CHECK(block == nullptr);
    CHECK(CachingAllocator::address(block) == nullptr);
    CHECK(CachingAllocator::pool_of(block) == 0);
    memory.free(block);
    CHECK(fake.allocate_calls == 0);
  }

  TEST_CASE("a freed block is handed out again on its stream without asking the device") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    const Stream other = new_stream(fake);
    Block* block = memory.allocate(1000, stream.state());
    void* address = CachingAllocator::address(block);
    memory.free(block);

    const std::int64_t requests = counters().allocations.load();
    const std::int64_t raw = counters().device_allocations.load();
    Block* again = memory.allocate(900, stream.state());
    CHECK(CachingAllocator::address(again) == address);
    CHECK(fake.allocate_calls == 1);
    CHECK(counters().allocations.load() == requests + 1);
    CHECK(counters().device_allocations.load() == raw);

    Block* elsewhere = memory.allocate(900, other.state());
    CHECK(fake.allocate_calls == 2);
    CHECK(counters().device_allocations.load() == raw + 1);
    memory.free(again);
    memory.free(elsewhere);
  }

  TEST_CASE("peaks follow the highest mark and can be reset") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    Block* a = memory.allocate(1024, stream.state());
    Block* b = memory.allocate(2048, stream.state());
    memory.free(a);
    CHECK(memory.stats().total.peak_allocated_bytes == 3072);
    CHECK(memory.stats().pools.at(0).stats.peak_allocated_bytes == 3072);
    memory.reset_peak_stats();
    CHECK(memory.stats().total.peak_allocated_bytes == 2048);
    CHECK(memory.stats().pools.at(0).stats.peak_allocated_bytes == 2048);
    memory.free(b);
  }

  TEST_CASE("empty_cache waits for the device and gives back what is wholly free") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    Block* small = memory.allocate(1024, stream.state());
    Block* large = memory.allocate(50 * kMiB, stream.state());
    memory.free(large);
    CHECK(memory.empty_cache().bytes == 50 * kMiB);
    CHECK(fake.synchronizations == 1);
    CHECK(fake.used() == 2 * kMiB);
    memory.free(small);
    CHECK(memory.empty_cache().bytes == 2 * kMiB);
    CHECK(fake.used() == 0);
    CHECK(adds_up(memory.stats(), fake));
  }

  TEST_CASE("on shortage cached segments are given back and the request succeeds") {
    FakeRuntime fake(64 * kMiB);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    memory.free(memory.allocate(40 * kMiB, stream.state()));
    Block* block = memory.allocate(60 * kMiB, stream.state());
    CHECK(block != nullptr);
    CHECK(fake.synchronizations == 1);
    CHECK(memory.stats().total.reserved_bytes == static_cast<std::int64_t>(60 * kMiB));
    memory.free(block);
  }

  TEST_CASE("out of memory names sizes and pools and changes nothing that is in use") {
    FakeRuntime fake(64 * kMiB);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    const std::uint64_t pool = memory.create_pool("train step");
    Block* block = memory.allocate(50 * kMiB, stream.state());
    const AllocatorStats before = memory.stats();
    const std::string message = message_of(memory, 20 * kMiB, stream);
    CHECK(message ==
          "allocator: out of memory on cpu, asked for 20.0 MiB with 14.0 MiB of 64.0 MiB free; "
          "pools: \"common\" 50.0 MiB in use, 0 B cached; \"train step\" 0 B in use, 0 B cached; "
          "use smaller batches or drop graphs and tensors that are no longer needed");
    CHECK(same(memory.stats().total, before.total));
    CHECK(adds_up(memory.stats(), fake));
    Block* fits = memory.allocate(10 * kMiB + 1, stream.state());
    CHECK(fits != nullptr);
    memory.free(fits);
    memory.free(block);
    memory.release_pool(pool);
  }

  TEST_CASE("a request near the largest number is out of memory, not an overflow") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    CHECK_THROWS_AS(
        (void)memory.allocate(std::numeric_limits<std::size_t>::max() - 5, stream.state()),
        OutOfMemory);
    CHECK(fake.allocate_calls == 0);
  }

  TEST_CASE("a device that fails while waiting leaves the allocator as it was") {
    FakeRuntime fake(32 * kMiB);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    Block* block = memory.allocate(30 * kMiB, stream.state());
    const AllocatorStats before = memory.stats();
    fake.broken = true;
    CHECK_THROWS_AS((void)memory.allocate(30 * kMiB, stream.state()), DeviceError);
    CHECK(same(memory.stats().total, before.total));
    memory.free(block);
  }

  TEST_CASE("statistics add up through a long random trace over pools and streams") {
    FakeRuntime fake(200 * kMiB);
    {
      CachingAllocator memory(fake);
      const std::vector<Stream> streams{new_stream(fake), new_stream(fake), new_stream(fake)};
      std::mt19937_64 random(7);
      std::vector<Block*> live;
      int wrong = 0;
      int refused = 0;
      for (int step = 0; step < 200'000; ++step) {
        if (live.size() < 5 || (live.size() < 200 && random() % 2 == 0)) {
          const std::size_t scale = std::size_t{1} << (random() % 26);
          try {
            live.push_back(memory.allocate(1 + random() % scale, streams[random() % 3].state()));
          } catch (const OutOfMemory&) {
            ++refused;
          }
        } else {
          std::swap(live[random() % live.size()], live.back());
          memory.free(live.back());
          live.pop_back();
        }
        if (step % 20'000 == 0) wrong += memory.empty_cache().bytes % kLargeGranularity != 0;
        if (step % 500 == 0) wrong += !adds_up(memory.stats(), fake);
      }
      for (Block* block : live) memory.free(block);
      CHECK(wrong == 0);
      CHECK(refused > 0);
      CHECK(memory.stats().total.blocks == 0);
      CHECK(memory.stats().total.requested_bytes == 0);
    }
    CHECK(fake.used() == 0);
    CHECK(fake.bad_deallocations == 0);
  }

  TEST_CASE("threads may allocate and free each other's blocks") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    std::vector<Block*> handed(2000);
    for (Block*& block : handed) block = memory.allocate(4096, stream.state());
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t i = t; i < handed.size(); i += 4) {
          memory.free(handed[i]);
          memory.free(memory.allocate(512 + 512 * (i % 7), stream.state()));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(memory.stats().total.blocks == 0);
    CHECK(adds_up(memory.stats(), fake));
  }

  TEST_CASE("the allocator of the CPU hands out memory that can be written") {
    CachingAllocator& memory = allocator(Device::cpu());
    CHECK(&memory == &allocator(Device::cpu()));
    Block* block = memory.allocate(1000, default_stream(Device::cpu()).state());
    auto* bytes = static_cast<unsigned char*>(CachingAllocator::address(block));
    CHECK(reinterpret_cast<std::uintptr_t>(bytes) % 64 == 0);
    for (int i = 0; i < 1000; ++i) bytes[i] = static_cast<unsigned char>(i);
    CHECK(bytes[999] == 231);
    memory.free(block);
    CHECK_THROWS_WITH_AS((void)allocator(Device::gpu(99)),
                         doctest::Contains("allocator: device numbers are 0 to 15"), DeviceError);
  }
}

}  // namespace capstan

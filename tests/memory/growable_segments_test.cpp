#include <doctest/doctest.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "capstan.h"
#include "framework/memory/block_pool.h"
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
using testing::new_stream;
using testing::Segments;

std::byte* address_of(const Block* block) {
  return static_cast<std::byte*>(CachingAllocator::address(block));
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Lets a device's allocator grow its segments, and puts back what it did.
struct Growing {
  explicit Growing(Device where)
      : device(where), before(allocator(device).has_growable_segments()) {
    allocator(device).set_growable_segments(true);
  }
  ~Growing() { allocator(device).set_growable_segments(before); }
  Device device;
  bool before;
};

// `buffers` live at once, of these sizes one capture after the other, into one pool.
std::int64_t reserved_after(const std::vector<std::size_t>& sizes, int buffers, Device device) {
  const GraphPool pool = graph_pool_handle(device, "sizes");
  std::deque<Graph> graphs;
  for (const std::size_t bytes : sizes) {
    Graph& graph = graphs.emplace_back(device);
    capture(graph,
            [&] {
              std::vector<Tensor> live;
              for (int i = 0; i < buffers; ++i) {
                live.push_back(zeros({static_cast<std::int64_t>(bytes / 4)}, {.device = device}));
              }
            },
            {.pool = pool});
  }
  for (Graph& graph : graphs) graph.replay();
  synchronize(device);
  return pool.stats().reserved_bytes;
}

}  // namespace

TEST_SUITE("memory/growable_segments") {
  TEST_CASE("G7: the order in which sizes are captured does not decide memory") {
    testing::for_each_device([](Device device) {
      const Growing growing(device);
      if (!allocator(device).has_growable_segments()) return;
      constexpr std::size_t kMB = 1'000'000;
      for (const int buffers : {1, 3, 10}) {
        CAPTURE(buffers);
        const std::int64_t most = (buffers * 8 + 20) * static_cast<std::int64_t>(kMiB);
        const std::int64_t up = reserved_after({kMB, 2 * kMB, 4 * kMB, 8 * kMB}, buffers, device);
        const std::int64_t down = reserved_after({8 * kMB, 4 * kMB, 2 * kMB, kMB}, buffers, device);
        CHECK(up <= most);
        CHECK(down <= most);
      }
    });
  }

  TEST_CASE("a free end grows by what is missing, in one segment whose blocks never move") {
    FakeRuntime fake(kPlenty, Segments::growable);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    Block* first = memory.allocate(4 * kMiB, stream.state());
    std::byte* const start = address_of(first);
    memory.free(first);
    first = memory.allocate(7 * kMiB, stream.state());
    CHECK(address_of(first) == start);
    CHECK(fake.used() == 8 * kMiB);
    Block* second = memory.allocate(30 * kMiB, stream.state());
    CHECK(address_of(second) == start + 7 * kMiB);
    CHECK(fake.used() == 38 * kMiB);
    CHECK(memory.stats().total.segments == 1);
    Block* small = memory.allocate(100, stream.state());
    CHECK(memory.stats().total.segments == 2);
    for (Block* block : {first, second, small}) memory.free(block);
    CHECK(memory.empty_cache().bytes == 40 * kMiB);
    CHECK(fake.live_segments() == 0);
    CHECK(fake.bad_deallocations + fake.bad_mappings == 0);
  }

  TEST_CASE("the end of another stream's memory is left alone, in a segment of its own") {
    FakeRuntime fake(kPlenty, Segments::growable);
    CachingAllocator memory(fake);
    const Stream own = new_stream(fake);
    const Stream other = new_stream(fake);
    memory.free(memory.allocate(4 * kMiB, other.state()));
    Block* block = memory.allocate(6 * kMiB, own.state());
    CHECK(fake.used() == 10 * kMiB);
    CHECK(memory.stats().total.segments == 2);
    memory.free(block);
  }

  TEST_CASE("free pages between blocks go back and their addresses are used again") {
    FakeRuntime fake(kPlenty, Segments::growable);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    memory.record_history(100);
    std::vector<Block*> blocks;
    for (int i = 0; i < 3; ++i) blocks.push_back(memory.allocate(5 * kMiB, stream.state()));
    std::byte* const middle = address_of(blocks[1]);
    memory.free(blocks[1]);
    // [5, 10) MiB are free; of these only [6, 10) are pages.
    const CacheEmptied emptied = memory.empty_cache();
    CHECK(emptied.bytes == 4 * kMiB);
    CHECK(emptied.kept_beside == 2 * kMiB);
    CHECK(fake.synchronizations == 1);
    CHECK(fake.used() == 12 * kMiB);
    const std::string json = memory.snapshot();
    CHECK(has(json, "\"bytes\":4194304,\"requested\":0,\"state\":\"unmapped\""));
    CHECK(has(json, "\"action\":\"segment_map\""));
    CHECK(has(json, "\"action\":\"segment_unmap\""));
    CHECK(has(json, "\"growable\":true"));

    blocks[1] = memory.allocate(3 * kMiB, stream.state());
    CHECK(address_of(blocks[1]) == middle);
    CHECK(fake.used() == 14 * kMiB);
    for (Block* block : blocks) memory.free(block);
    CHECK(memory.stats().total.blocks == 0);
    CHECK(memory.empty_cache().bytes == 14 * kMiB);
    CHECK(fake.live_segments() == 0);
    CHECK(fake.bad_deallocations + fake.bad_mappings == 0);
  }

  TEST_CASE("G11: a capture grows what its pool's warm-up on the same stream left") {
    testing::for_each_device([](Device device) {
      const Growing growing(device);
      if (!allocator(device).has_growable_segments()) return;
      const GraphPool pool = graph_pool_handle(device, "step");
      const StreamGuard guard(Stream::create(device));
      {
        const PoolGuard warming(pool);
        (void)zeros({std::int64_t{1} << 20}, {.device = device});
      }
      CHECK(pool.stats().reserved_bytes == 4 * static_cast<std::int64_t>(kMiB));
      Graph graph(device);
      graph.capture_begin({.pool = pool});
      (void)zeros({std::int64_t{2} << 20}, {.device = device});
      graph.capture_end();
      CHECK(pool.stats().reserved_bytes == 8 * static_cast<std::int64_t>(kMiB));
      CHECK(pool.stats().segments == 1);
      graph.replay();
      synchronize(device);
    });
  }

  TEST_CASE("a new segment needs no more host memory than was set aside, whenever it is made") {
    for (std::size_t before = 0; before < 70; ++before) {
      FakeRuntime fake(kPlenty, Segments::growable);
      CachingAllocator memory(fake);
      const Stream stream = new_stream(fake);
      std::vector<Block*> blocks;
      for (std::size_t i = 0; i < before; ++i) {
        blocks.push_back(memory.allocate(512, stream.state()));
      }
      blocks.push_back(memory.allocate(3 * kMiB, stream.state()));
      CHECK(memory.stats().total.blocks == static_cast<std::int64_t>(blocks.size()));
      for (Block* block : blocks) memory.free(block);
    }
  }

  TEST_CASE("a capture grows what earlier captures of its pool left, on whichever stream") {
    FakeRuntime fake(kPlenty, Segments::growable);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    const std::uint64_t pool = memory.create_pool("step");
    const Ref<CaptureSession> first = CaptureSession::begin(stream, {.pool = pool});
    memory.free(memory.allocate(4 * kMiB, stream.state()));
    first->abandon();
    // Between captures the memory is nobody's, so another stream extends it too.
    const Stream other = new_stream(fake);
    const Ref<CaptureSession> second = CaptureSession::begin(other, {.pool = pool});
    memory.free(memory.allocate(8 * kMiB, other.state()));
    // Within the capture it is this stream's.
    const Ref<StreamState> joined(&stream.state());
    second->join(*joined, second->mark(other.state()));
    Block* block = memory.allocate(2 * kMiB, stream.state());
    CHECK(fake.used() == 10 * kMiB);
    memory.free(block);
    second->abandon();
    CHECK(memory.stats().total.segments == 1);
    const Ref<CaptureSession> third = CaptureSession::begin(other, {.pool = pool});
    memory.free(memory.allocate(10 * kMiB, other.state()));
    third->abandon();
    CHECK(fake.used() == 10 * kMiB);
    memory.release_pool(pool);
    CHECK(fake.live_segments() == 0);
  }

  TEST_CASE("nothing is unmapped while any capture is in progress") {
    FakeRuntime fake(64 * kMiB, Segments::growable);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    const Stream capturing = new_stream(fake);
    const std::uint64_t old = memory.create_pool("old");
    const std::uint64_t pool = memory.create_pool("step");
    memory.free(memory.allocate(60 * kMiB, stream.state()));
    const Ref<CaptureSession> session = CaptureSession::begin(capturing, {.pool = pool});
    memory.release_pool(old);
    CHECK(memory.empty_cache().capturing);
    CHECK_THROWS_WITH_AS((void)memory.allocate(32 * kMiB, capturing.state()),
                         doctest::Contains("which could free 60.0 MiB"), OutOfMemory);
    CHECK(fake.deallocate_calls == 0);
    CHECK(fake.synchronizations == 0);
    session->abandon();
    memory.free(memory.allocate(32 * kMiB, stream.state()));
    CHECK(memory.empty_cache().bytes == 60 * kMiB);
    memory.release_pool(pool);
  }

  TEST_CASE("a released pool gives back its free pages at once, the rest with the last block") {
    FakeRuntime fake(kPlenty, Segments::growable);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    const std::uint64_t pool = memory.create_pool("step");
    const Ref<CaptureSession> session = CaptureSession::begin(stream, {.pool = pool});
    std::vector<Block*> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(memory.allocate(6 * kMiB, stream.state()));
    session->abandon();
    memory.free(blocks[1]);
    memory.release_pool(pool);
    CHECK(fake.used() == 18 * kMiB);
    CHECK(fake.synchronizations == 1);
    memory.free(blocks[0]);
    memory.free(blocks[3]);
    CHECK(fake.synchronizations == 1);  // a free waits for the device only if it is the last
    memory.free(blocks[2]);
    CHECK(fake.synchronizations == 2);
    CHECK(fake.used() == 0);
    CHECK(memory.stats().pools.size() == 1);
    CHECK(fake.bad_deallocations == 0);
  }

  TEST_CASE("a failure to map leaves everything as it was") {
    FakeRuntime fake(10 * kMiB, Segments::growable);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    CHECK_THROWS_AS((void)memory.allocate(11 * kMiB, stream.state()), OutOfMemory);
    CHECK(fake.live_segments() == 0);
    CHECK(memory.stats().total.segments == 0);
    Block* block = memory.allocate(5 * kMiB, stream.state());
    CHECK_THROWS_AS((void)memory.allocate(6 * kMiB, stream.state()), OutOfMemory);
    CHECK(memory.stats().total.reserved_bytes == 6 * static_cast<std::int64_t>(kMiB));
    CHECK(fake.used() == 6 * kMiB);
    Block* fits = memory.allocate(5 * kMiB, stream.state());
    CHECK(address_of(fits) == address_of(block) + 5 * kMiB);
    memory.free(block);
    memory.free(fits);
  }

  TEST_CASE("a limit counts pages that are mapped") {
    FakeRuntime fake(kPlenty, Segments::growable);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    memory.set_memory_limit(16 * kMiB);
    Block* block = memory.allocate(10 * kMiB, stream.state());
    const int calls = fake.allocate_calls;
    CHECK_THROWS_AS((void)memory.allocate(8 * kMiB, stream.state()), OutOfMemory);
    CHECK(fake.allocate_calls == calls);
    Block* rest = memory.allocate(6 * kMiB, stream.state());
    CHECK(fake.used() == 16 * kMiB);
    memory.free(block);
    memory.free(rest);
  }

  TEST_CASE("on shortage the free pages of one stream serve another") {
    FakeRuntime fake(64 * kMiB, Segments::growable);
    CachingAllocator memory(fake);
    const Stream own = new_stream(fake);
    const Stream other = new_stream(fake);
    Block* kept = memory.allocate(2 * kMiB, other.state());
    memory.free(memory.allocate(50 * kMiB, other.state()));
    Block* block = memory.allocate(60 * kMiB, own.state());
    CHECK(fake.synchronizations == 1);
    CHECK(fake.used() == 62 * kMiB);
    memory.free(block);
    memory.free(kept);
  }

  TEST_CASE("without addresses, or when told so, segments are plain") {
    FakeRuntime fake(kPlenty, Segments::growable);
    CachingAllocator memory(fake);
    const Stream stream = new_stream(fake);
    CHECK(memory.has_growable_segments());
    SUBCASE("without addresses") {
      fake.no_addresses = true;
      memory.free(memory.allocate(3 * kMiB, stream.state()));
      CHECK(fake.used() == 20 * kMiB);
    }
    SUBCASE("when told so, from then on") {
      Block* before = memory.allocate(3 * kMiB, stream.state());
      memory.set_growable_segments(false);
      CHECK_FALSE(memory.has_growable_segments());
      Block* after = memory.allocate(3 * kMiB, stream.state());
      CHECK(fake.used() == 24 * kMiB);
      memory.set_growable_segments(true);
      Block* again = memory.allocate(18 * kMiB, stream.state());
      CHECK(address_of(again) == address_of(before) + 3 * kMiB);
      for (Block* block : {before, after, again}) memory.free(block);
    }
    (void)memory.empty_cache();
    CHECK(fake.used() == 0);
    CHECK(fake.live_segments() == 0);
    FakeRuntime plain(kPlenty);
    CHECK_FALSE(CachingAllocator(plain).has_growable_segments());
  }

  TEST_CASE("an allocator that ends gives back all, also what is in use") {
    FakeRuntime fake(kPlenty, Segments::growable);
    {
      CachingAllocator memory(fake);
      const Stream stream = new_stream(fake);
      std::vector<Block*> blocks;
      for (int i = 0; i < 5; ++i) blocks.push_back(memory.allocate(5 * kMiB, stream.state()));
      memory.free(blocks[1]);
      memory.free(blocks[4]);
      (void)memory.empty_cache();
    }
    CHECK(fake.used() == 0);
    CHECK(fake.live_segments() == 0);
    CHECK(fake.bad_deallocations == 0);
  }

  TEST_CASE("pages that came back hold what is written, and the rest of the segment what it held") {
    testing::for_each_device([](Device device) {
      FaultyRuntime memory_of(runtime(device), 256 * kMiB, true);
      if (memory_of.page_bytes() == 0) return;
      CachingAllocator memory(memory_of);
      memory.set_growable_segments(true);
      const Stream stream = Stream::create(device);
      StreamState& state = stream.state();
      std::vector<Block*> blocks;
      for (std::uint8_t i = 0; i < 4; ++i) {
        blocks.push_back(memory.allocate(5 * kMiB, state));
        memory_of.fill(address_of(blocks[i]), static_cast<std::uint8_t>(10 + i), 5 * kMiB, state);
      }
      memory.free(blocks[1]);
      CHECK(memory.empty_cache().bytes == 4 * kMiB);
      blocks[1] = memory.allocate(20 * kMiB, state);
      memory_of.fill(address_of(blocks[1]), 99, 20 * kMiB, state);
      Block* hole = memory.allocate(5 * kMiB, state);
      memory_of.fill(address_of(hole), 77, 5 * kMiB, state);
      blocks.push_back(hole);
      const std::vector<int> want{10, 99, 12, 13, 77};
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        for (const std::size_t at : {std::size_t{0}, 5 * kMiB - 1}) {
          std::uint8_t got = 0;
          memory_of.copy(&got, address_of(blocks[i]) + at, 1, state);
          memory_of.synchronize_stream(state);
          CHECK(int{got} == want[i]);
        }
        memory.free(blocks[i]);
      }
      (void)memory.empty_cache();
      CHECK(memory_of.used() == 0);
      CHECK(memory_of.live_segments() == 0);
    });
  }
}

}  // namespace capstan

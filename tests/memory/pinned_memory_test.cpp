#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capstan.h"
#include "framework/memory/pinned_allocator.h"
#include "framework/runtime/capture_session.h"
#include "framework/tensor/transfer.h"
#include "tests/memory/fake_runtime.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::FakeRuntime;
using testing::kPlenty;
using testing::new_stream;

float* floats(const PinnedBuffer& buffer) { return static_cast<float*>(buffer.data()); }

// A graph that copies four floats from memory of its own to `to`.
void capture_copy(Graph& graph, const Tensor& to, float value, GraphPool pool, void** address) {
  PinnedBuffer buffer(to.device(), 16);
  *address = buffer.data();
  std::fill_n(floats(buffer), 4, value);
  const StreamGuard guard(Stream::create(to.device()));
  graph.capture_begin({.pool = std::move(pool)});
  transfer_from_pinned(to, buffer);
  graph.capture_end();
}

// True if none of a few new buffers of the size has this memory.
bool is_kept(Device device, const void* address) {
  std::vector<PinnedBuffer> taken;
  for (int i = 0; i < 8; ++i) taken.emplace_back(device, 16);
  return std::none_of(taken.begin(), taken.end(),
                      [&](const PinnedBuffer& buffer) { return buffer.data() == address; });
}

}  // namespace

TEST_SUITE("memory/pinned_memory") {
  TEST_CASE("a pinned buffer moves and is empty afterwards") {
    PinnedBuffer buffer(Device::cpu(), 64);
    void* data = buffer.data();
    REQUIRE(data != nullptr);
    PinnedBuffer moved = std::move(buffer);
    CHECK(moved.data() == data);
    CHECK(moved.bytes() == 64);
    CHECK(buffer.data() == nullptr);
    CHECK(buffer.bytes() == 0);
    CHECK(PinnedBuffer(Device::cpu(), 0).data() == nullptr);
  }

  TEST_CASE("blocks are powers of two, and a free one serves the next request of its size") {
    FakeRuntime fake(kPlenty);
    PinnedAllocator pinned(fake);
    Ref<PinnedMemory> a = pinned.allocate(1000);
    const Ref<PinnedMemory> b = pinned.allocate(1);
    CHECK(pinned.stats().allocated_bytes == 1024 + 512);
    CHECK(pinned.stats().blocks == 2);
    const void* address = a->data();
    a = nullptr;
    CHECK(pinned.stats().allocated_bytes == 512);
    CHECK(pinned.stats().reserved_bytes == 1024 + 512);
    const Ref<PinnedMemory> other_size = pinned.allocate(1025);
    CHECK(other_size->data() != address);
    const int calls = fake.pinned_calls;
    const Ref<PinnedMemory> again = pinned.allocate(1024);
    CHECK(again->data() == address);
    CHECK(fake.pinned_calls == calls);
    CHECK_THROWS_AS((void)pinned.allocate(~std::size_t{0} - 5), OutOfMemory);
  }

  TEST_CASE("memory that streams use is handed out again when all of them are done") {
    FakeRuntime fake(kPlenty);
    const Stream one = new_stream(fake);
    const Stream two = new_stream(fake);
    {
      PinnedAllocator pinned(fake);
      Ref<PinnedMemory> memory = pinned.allocate(100);
      const void* address = memory->data();
      fake.shut(one);
      fake.shut(two);
      pinned.record_use(memory, one.state());
      pinned.record_use(memory, two.state());
      pinned.record_use(memory, one.state());
      memory = nullptr;
      CHECK(fake.queries == 0);  // giving back asks nothing
      CHECK(pinned.stats().awaiting_bytes == 512);
      fake.open(one);
      CHECK(pinned.allocate(100)->data() != address);
      fake.open(two);
      const Ref<PinnedMemory> first = pinned.allocate(100);
      const Ref<PinnedMemory> second = pinned.allocate(100);
      CHECK((first->data() == address || second->data() == address));
      CHECK(pinned.stats().awaiting_bytes == 0);
      CHECK(fake.events == 2);
      pinned.record_use(second, one.state());
      CHECK(fake.events == 2);
    }
    CHECK(fake.events == 0);
    CHECK(fake.pinned_blocks() == 0);
  }

  TEST_CASE("H3: memory that a captured copy uses stays with the graph") {
    FakeRuntime fake(kPlenty);
    PinnedAllocator pinned(fake);
    const Stream stream = new_stream(fake);
    Ref<PinnedMemory> memory = pinned.allocate(100);
    const void* address = memory->data();
    const Ref<CaptureSession> session = CaptureSession::begin(stream, {.pool = 1});
    pinned.record_use(memory, stream.state());
    memory = nullptr;
    CHECK(pinned.allocate(100)->data() != address);
    SUBCASE("until the graph is gone") {
      CaptureResult graph = session->finish();
      CHECK(pinned.stats().blocks == 1);
      graph.retained.clear();
    }
    SUBCASE("or the capture was abandoned") { session->abandon(); }
    CHECK(pinned.stats().blocks == 0);
    CHECK(fake.events_in_capture == 0);
    CHECK(fake.events == 0);
  }

  TEST_CASE("memory freed in a capture without a use is handed out at once") {
    FakeRuntime fake(kPlenty);
    PinnedAllocator pinned(fake);
    const Stream stream = new_stream(fake);
    const Ref<CaptureSession> session = CaptureSession::begin(stream, {.pool = 1});
    Ref<PinnedMemory> memory = pinned.allocate(100);
    const void* address = memory->data();
    memory = nullptr;
    CHECK(pinned.allocate(100)->data() == address);
    CHECK(fake.queries + fake.events == 0);
    session->abandon();
  }

  TEST_CASE("nothing goes back to the system during a capture, all of it with empty_cache after") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    PinnedAllocator& pinned = memory.pinned();
    const Stream stream = new_stream(fake);
    const Stream capturing = new_stream(fake);
    const Ref<PinnedMemory> kept = pinned.allocate(100);
    Ref<PinnedMemory> used = pinned.allocate(5000);
    fake.shut(stream);
    pinned.record_use(used, stream.state());
    used = nullptr;
    (void)pinned.allocate(600);
    const std::string json = memory.snapshot();
    for (const std::string part : {"\"bytes\":512,\"requested\":100,\"state\":\"in_use\"",
                                   "\"bytes\":8192,\"requested\":0,\"state\":\"awaiting_free\"",
                                   "\"bytes\":1024,\"requested\":0,\"state\":\"free\"",
                                   "\"pinned\":{\"allocated_bytes\":512,\"reserved_bytes\":9728"}) {
      CAPTURE(part);
      CHECK(json.find(part) != std::string::npos);
    }
    const Ref<CaptureSession> session = CaptureSession::begin(capturing, {.pool = 1});
    CHECK(memory.empty_cache().pinned == 0);
    CHECK(pinned.empty_cache() == 0);
    CHECK(fake.pinned_blocks() == 3);
    session->abandon();
    CHECK(memory.empty_cache().pinned == 1024);
    fake.open(stream);
    CHECK(memory.empty_cache().pinned == 8192);
    CHECK(fake.pinned_blocks() == 1);
    CHECK(pinned.stats().reserved_bytes == 512);
  }

  TEST_CASE("on shortage free memory makes room, but not during a capture") {
    FakeRuntime fake(kPlenty);
    fake.pinned_limit = 2;
    PinnedAllocator pinned(fake);
    const Stream capturing = new_stream(fake);
    const Ref<PinnedMemory> kept = pinned.allocate(512);
    (void)pinned.allocate(1024);
    const Ref<CaptureSession> session = CaptureSession::begin(capturing, {.pool = 1});
    CHECK_THROWS_WITH_AS((void)pinned.allocate(2048),
                         "pinned memory: no page-locked memory left for 2048 bytes; 512 are in use "
                         "and 1024 cached; use smaller batches or less prefetching",
                         OutOfMemory);
    CHECK(fake.pinned_blocks() == 2);
    session->abandon();
    const Ref<PinnedMemory> fits = pinned.allocate(2048);
    CHECK_THROWS_AS((void)pinned.allocate(4096), OutOfMemory);
    CHECK(pinned.stats().reserved_bytes == 2560);
  }

  TEST_CASE("the memory of a range is found only while it is handed out") {
    FakeRuntime fake(kPlenty);
    PinnedAllocator pinned(fake);
    Ref<PinnedMemory> memory = pinned.allocate(100);
    auto* const start = static_cast<std::byte*>(memory->data());
    CHECK(pinned.find(start, 100).get() == memory.get());
    CHECK(pinned.find(start + 96, 4).get() == memory.get());
    CHECK_FALSE(pinned.find(start + 96, 5));
    CHECK_FALSE(pinned.find(&fake, 1));
    memory = nullptr;
    CHECK_FALSE(pinned.find(start, 1));
  }

  TEST_CASE("two graphs keep the memory they copy from, whoever shares a pool and dies first") {
    testing::for_each_device([](Device device) {
      for (const bool shared : {false, true}) {
        for (const std::size_t first : {0u, 1u}) {
          CAPTURE(shared);
          CAPTURE(first);
          const GraphPool pool = graph_pool_handle(device);
          const Tensor to = zeros({4}, {.device = device});
          synchronize(device);
          std::array<std::optional<Graph>, 2> graphs;
          std::array<void*, 2> memory{};
          for (std::size_t i = 0; i < 2; ++i) {
            graphs[i].emplace(device);
            capture_copy(*graphs[i], to, static_cast<float>(i + 1), shared ? pool : GraphPool(),
                         &memory[i]);
          }
          CHECK(memory[0] != memory[1]);
          CHECK(is_kept(device, memory[0]));
          CHECK(is_kept(device, memory[1]));
          const std::size_t last = 1 - first;
          for (const std::size_t i : {first, last}) {
            graphs[i]->replay();
            CHECK(sum(to).item() == 4.0 * static_cast<double>(i + 1));
          }
          graphs[first].reset();
          CHECK_FALSE(is_kept(device, memory[first]));
          CHECK(is_kept(device, memory[last]));
          to.zero_();
          graphs[last]->replay();
          CHECK(sum(to).item() == 4.0 * static_cast<double>(last + 1));
          graphs[last].reset();
          CHECK_FALSE(is_kept(device, memory[last]));
        }
      }
    });
  }

  TEST_CASE("H3: a captured copy from page-locked memory reads it at the time of the replay") {
    testing::for_each_device([](Device device) {
      const Tensor x = zeros({4}, {.device = device});
      std::optional<PinnedBuffer> buffer(std::in_place, device, 16);
      float* const values = floats(*buffer);
      std::fill_n(values, 4, 1.0f);
      Graph graph(device);
      {
        const Tensor host = from_pinned(*buffer, {4});
        capture(graph, [&] { x.copy_(host); });
      }
      graph.replay();
      CHECK(sum(x).item() == 4.0);
      const void* const address = values;
      std::fill_n(values, 4, 2.5f);
      buffer.reset();
      CHECK(is_kept(device, address));
      graph.replay();
      CHECK(sum(x).item() == 10.0);
      graph.reset();
      CHECK_FALSE(is_kept(device, address));
    });
  }

  TEST_CASE("H3: a copy from ordinary host memory is refused in a capture, with the remedy") {
    if (!testing::needs_gpu()) return;
    const Device device = Device::gpu();
    const Tensor x = zeros({4}, {.device = device});
    const Tensor host = ones({4});
    Graph graph(device);
    CHECK_THROWS_WITH_AS(capture(graph, [&] { x.copy_(host); }),
                         doctest::Contains("or from a PinnedBuffer"), CaptureError);
  }

  TEST_CASE("a buffer too small for its use is refused") {
    const PinnedBuffer buffer(Device::cpu(), 16);
    CHECK_THROWS_WITH_AS((void)from_pinned(buffer, {5}),
                         doctest::Contains("needs 20 bytes, the buffer has 16"), ValueError);
    CHECK_THROWS_WITH_AS(transfer_from_pinned(zeros({5}), buffer),
                         doctest::Contains("the buffer has 16 bytes and the tensor 20"),
                         ValueError);
    CHECK(from_pinned(buffer, {2, 2}).numel() == 4);
  }
}

}  // namespace capstan

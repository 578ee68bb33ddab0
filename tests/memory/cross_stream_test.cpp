#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "capstan.h"
#include "framework/memory/block_pool.h"
#include "framework/runtime/capture_session.h"
#include "tests/memory/fake_runtime.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::FakeRuntime;
using testing::kMiB;
using testing::kPlenty;
using testing::new_stream;

// A float tensor of 4 MiB on the current stream.
Tensor four_mib(Device device) { return empty({std::int64_t{1} << 20}, {.device = device}); }

std::int64_t reserved_of(const GraphPool& pool) { return pool.stats().reserved_bytes; }

// Scenario G1: `rounds` times a block of the capture's stream is used on `side`, joined and freed.
void capture_rounds(Graph& graph, Device device, int rounds, bool explicitly) {
  const Stream side = Stream::create(device);
  capture(graph, [&] {
    const Stream origin = current_stream(device);
    for (int i = 0; i < rounds; ++i) {
      const Tensor x = four_mib(device);
      side.wait_stream(origin);
      {
        const StreamGuard guard(side);
        x.zero_();
        if (explicitly) x.record_stream(side);
      }
      origin.wait_stream(side);
    }
  });
}

}  // namespace

TEST_SUITE("memory/cross_stream") {
  TEST_CASE("a block used on another stream comes back when that stream has got there") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream own = new_stream(fake);
    const Stream other = new_stream(fake);
    Block* block = memory.allocate(3 * kMiB, own.state());
    void* address = CachingAllocator::address(block);
    memory.record_stream(block, other.state());
    memory.record_stream(block, other.state());
    fake.shut(other);
    memory.free(block);
    CHECK(memory.stats().awaiting_bytes == 3 * static_cast<std::int64_t>(kMiB));
    CHECK(memory.stats().total.allocated_bytes == 3 * static_cast<std::int64_t>(kMiB));

    Block* second = memory.allocate(3 * kMiB, own.state());
    CHECK(CachingAllocator::address(second) != address);
    fake.open(other);
    Block* third = memory.allocate(3 * kMiB, own.state());
    CHECK(CachingAllocator::address(third) == address);
    CHECK(memory.stats().awaiting_bytes == 0);
    memory.free(second);
    memory.free(third);
    CHECK(memory.stats().total.allocated_bytes == 0);
    CHECK(fake.events == 1);
  }

  TEST_CASE("uses on its own stream cost nothing") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream own = new_stream(fake);
    Block* block = memory.allocate(512, own.state());
    memory.record_stream(block, own.state());
    memory.record_stream(nullptr, own.state());
    memory.free(block);
    CHECK(memory.stats().total.allocated_bytes == 0);
    CHECK(fake.events == 0);
  }

  TEST_CASE("every stream that uses a block must be done, in whatever order they finish") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream own = new_stream(fake);
    const std::vector<Stream> others{new_stream(fake), new_stream(fake), new_stream(fake)};
    Block* block = memory.allocate(512, own.state());
    for (const Stream& stream : others) {
      memory.record_stream(block, stream.state());
      fake.shut(stream);
    }
    memory.free(block);
    for (const std::size_t next : {1, 0, 2}) {
      memory.free(memory.allocate(512, own.state()));
      CHECK(memory.stats().awaiting_bytes == 512);
      fake.open(others[next]);
    }
    memory.free(memory.allocate(512, own.state()));
    CHECK(memory.stats().awaiting_bytes == 0);
    CHECK(fake.events == 3);
  }

  TEST_CASE("events are used again and destroyed with the allocator") {
    FakeRuntime fake(kPlenty);
    {
      CachingAllocator memory(fake);
      const Stream own = new_stream(fake);
      const Stream other = new_stream(fake);
      for (int i = 0; i < 100; ++i) {
        Block* block = memory.allocate(512, own.state());
        memory.record_stream(block, other.state());
        memory.free(block);
      }
      CHECK(fake.events <= 2);
      fake.shut(other);
      Block* pending = memory.allocate(512, own.state());
      memory.record_stream(pending, other.state());
      memory.free(pending);
      Block* live = memory.allocate(512, own.state());
      memory.record_stream(live, other.state());
    }
    CHECK(fake.events == 0);
    CHECK(fake.used() == 0);
  }

  TEST_CASE("G4: a block last used on a stream that captures waits for the end of the capture") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream own = new_stream(fake);
    const Stream capturing = new_stream(fake);
    const std::uint64_t pool = memory.create_pool("step");
    Block* before = memory.allocate(512, own.state());
    memory.record_stream(before, capturing.state());
    const Ref<CaptureSession> session = CaptureSession::begin(capturing, {.pool = pool});
    Block* within = memory.allocate(512, own.state());
    memory.record_stream(within, capturing.state());
    memory.free(before);
    memory.free(within);
    fake.shut(capturing);
    Block* other = memory.allocate(512, own.state());
    CHECK(memory.stats().awaiting_bytes == 1024);
    CHECK(fake.queries == 0);
    CHECK(fake.events_in_capture == 0);

    session->abandon();
    memory.free(memory.allocate(512, own.state()));
    CHECK(memory.stats().awaiting_bytes == 1024);  // the work is not done
    fake.open(capturing);
    memory.free(memory.allocate(512, own.state()));
    CHECK(memory.stats().awaiting_bytes == 0);
    memory.free(other);
    memory.release_pool(pool);
    CHECK(memory.stats().total.blocks == 0);
  }

  TEST_CASE("no event is asked for by a stream that captures") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream own = new_stream(fake);
    const Stream other = new_stream(fake);
    const Stream capturing = new_stream(fake);
    const std::uint64_t pool = memory.create_pool("step");
    Block* block = memory.allocate(512, own.state());
    memory.record_stream(block, other.state());
    fake.shut(other);
    memory.free(block);
    const Ref<CaptureSession> session = CaptureSession::begin(capturing, {.pool = pool});
    memory.free(memory.allocate(512, capturing.state()));
    CHECK(fake.queries == 0);
    fake.open(other);
    session->abandon();  // flushes, without another request
    CHECK(memory.stats().awaiting_bytes == 0);
    memory.release_pool(pool);
  }

  TEST_CASE("G4: a free records no event on a stream on which another thread begins a capture") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream own = new_stream(fake);
    const Stream capturing = new_stream(fake);
    const std::uint64_t pool = memory.create_pool("step");
    std::atomic<bool> done{false};
    std::thread other([&] {
      for (int i = 0; i < 5'000; ++i) {
        const Ref<CaptureSession> session = CaptureSession::begin(capturing, {.pool = pool});
        session->abandon();
      }
      done = true;
    });
    while (!done) {
      Block* block = memory.allocate(512, own.state());
      memory.record_stream(block, capturing.state());
      memory.free(block);
    }
    other.join();
    memory.free(memory.allocate(512, own.state()));
    CHECK(fake.events_in_capture == 0);
    CHECK(memory.stats().awaiting_bytes == 0);
    memory.release_pool(pool);
  }

  TEST_CASE("on shortage the blocks of other streams are waited for") {
    FakeRuntime fake(64 * kMiB);
    CachingAllocator memory(fake);
    const Stream own = new_stream(fake);
    const Stream other = new_stream(fake);
    Block* block = memory.allocate(60 * kMiB, own.state());
    memory.record_stream(block, other.state());
    fake.shut(other);
    memory.free(block);
    CHECK_THROWS_AS((void)memory.allocate(40 * kMiB, own.state()), OutOfMemory);
    fake.open(other);
    Block* again = memory.allocate(40 * kMiB, own.state());
    CHECK(again != nullptr);
    memory.free(again);
  }

  TEST_CASE("record_stream names both devices if they differ, and views share the block") {
    const Tensor x = empty({4});
    x.slice(0, 1, 2).record_stream(Stream::create(Device::cpu()));
    CHECK_THROWS_AS(Tensor().record_stream(current_stream(Device::cpu())), Error);
    float outside[2] = {1.0f, 2.0f};
    const Tensor borrowed = from_blob(outside, {2}, {});
    borrowed.record_stream(Stream::create(Device::cpu()));
    if (!gpu_available()) return;
    CHECK_THROWS_WITH_AS(x.record_stream(current_stream(Device::gpu())),
                         doctest::Contains("record_stream: the memory is on cpu"), DeviceError);
  }

  TEST_CASE("G1: a block whose every use precedes the next request is reused in the capture") {
    testing::for_each_device([](Device device) {
      for (const bool explicitly : {false, true}) {
        Graph graph(device);
        capture_rounds(graph, device, 50, explicitly);
        CHECK(reserved_of(graph.pool()) <= 20 * static_cast<std::int64_t>(kMiB));
        CHECK(graph.pool().stats().peak_allocated_bytes <= 12 * static_cast<std::int64_t>(kMiB));
        CHECK(graph.pool().stats().allocated_bytes == 0);
        graph.replay();
        synchronize(device);
      }
    });
  }

  TEST_CASE("G1: without a join a block is not reused before the end of the capture") {
    testing::for_each_device([](Device device) {
      const Stream side = Stream::create(device);
      Graph graph(device);
      std::vector<const void*> addresses;
      capture(graph, [&] {
        const Stream origin = current_stream(device);
        side.wait_stream(origin);
        for (int i = 0; i < 10; ++i) {
          const Tensor x = four_mib(device);
          addresses.push_back(x.raw_data());
          const StreamGuard guard(side);
          x.zero_();
        }
        origin.wait_stream(side);
        addresses.push_back(four_mib(device).raw_data());
      });
      for (std::size_t i = 0; i < 10; ++i) {
        for (std::size_t j = 0; j < i; ++j) REQUIRE(addresses[i] != addresses[j]);
      }
      // Which of them depends on where the device put the segments.
      CHECK(std::count(addresses.begin(), addresses.begin() + 10, addresses[10]) == 1);
      CHECK(graph.pool().stats().allocated_bytes == 0);
    });
  }

  TEST_CASE("a join before the last use does not free the block") {
    const Device device = Device::cpu();
    const Stream side = Stream::create(device);
    Graph graph(device);
    bool reused = true;
    capture(graph, [&] {
      const Stream origin = current_stream(device);
      std::optional<Tensor> x = four_mib(device);
      const void* address = x->raw_data();
      side.wait_stream(origin);
      {
        const StreamGuard guard(side);
        x->zero_();
      }
      origin.wait_stream(side);
      {
        const StreamGuard guard(side);
        x->fill_(1.0);
      }
      x.reset();
      reused = four_mib(device).raw_data() == address;
      origin.wait_stream(side);
      CHECK(four_mib(device).raw_data() == address);
    });
    CHECK_FALSE(reused);
  }

  TEST_CASE("G1: the time of a capture grows linearly with its rounds") {
    const auto seconds = [](int rounds) {
      Graph graph(Device::cpu());
      const auto start = std::chrono::steady_clock::now();
      capture_rounds(graph, Device::cpu(), rounds, false);
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    (void)seconds(50);
    double few = 1e9;
    double many = 1e9;
    for (int i = 0; i < 5; ++i) {
      few = std::min(few, seconds(200));
      many = std::min(many, seconds(1600));
    }
    CHECK(many < 20 * few);
  }

  TEST_CASE("G6: captures on different streams share the memory of their pool") {
    testing::for_each_device([](Device device) {
      const GraphPool pool = graph_pool_handle(device, "shared");
      const auto run = [&](Graph& graph, const Tensor& y) {
        const StreamGuard guard(Stream::create(device));
        graph.capture_begin({.pool = pool});
        Tensor x = ones({std::int64_t{4} << 20}, {.device = device});
        for (int i = 0; i < 3; ++i) x = x + 1.0;
        y.copy_(x.slice(0, 0, 1));
        x = Tensor();
        graph.capture_end();
      };
      const Tensor a = zeros({1}, {.device = device});
      const Tensor b = zeros({1}, {.device = device});
      synchronize(device);
      Graph first(device);
      Graph second(device);
      run(first, a);
      const std::int64_t once = reserved_of(pool);
      run(second, b);
      CHECK(reserved_of(pool) == once);
      for (const int order : {0, 1, 1, 0}) {
        a.zero_();
        b.zero_();
        (order == 0 ? first : second).replay();
        CHECK((order == 0 ? a : b).item() == 4.0);
        CHECK((order == 0 ? b : a).item() == 0.0);
      }
    });
  }
}

}  // namespace capstan

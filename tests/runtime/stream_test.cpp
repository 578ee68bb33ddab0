#include "framework/runtime/stream.h"

#include <doctest/doctest.h>

#include <cstring>
#include <thread>

#include "framework/core/error.h"
#include "framework/memory/caching_allocator.h"
#include "framework/memory/pinned_buffer.h"
#include "framework/runtime/capture_session.h"
#include "framework/runtime/dispatch.h"
#include "framework/runtime/event.h"
#include "tests/support/testing.h"

using namespace capstan;

namespace {

Ref<CaptureSession> begin(const Stream& stream, const GraphPool& pool) {
  return CaptureSession::begin(stream, {.pool = pool.id()});
}

void announce(const Stream& stream, const char* name) {
  stream.state().session()->announce(name, stream.state(), {}, {}, "");
}

}  // namespace

TEST_SUITE("runtime/stream") {
  TEST_CASE("a guard makes a stream current on its thread alone, and puts the old one back") {
    testing::for_each_device([](Device device) {
      const Stream side = Stream::create(device);
      CHECK(current_stream(device) == default_stream(device));
      CHECK(default_stream(device).is_default());
      {
        const StreamGuard guard(side);
        CHECK(current_stream(device) == side);
        std::thread([&] { CHECK(current_stream(device) == default_stream(device)); }).join();
      }
      CHECK(current_stream(device) == default_stream(device));
    });
  }

  TEST_CASE("copies run in the order of their stream and events order streams") {
    testing::for_each_device([](Device device) {
      constexpr std::size_t kBytes = 1 << 20;
      DeviceRuntime& owner = runtime(device);
      const Stream a = Stream::create(device);
      const Stream b = Stream::create(device, {.priority = -1});
      void* const memory = owner.allocate(kBytes);
      PinnedBuffer host(device, kBytes);
      owner.fill(memory, 1, kBytes, a.state());
      owner.fill(memory, 7, kBytes, a.state());
      b.wait_stream(a);
      owner.copy(host.data(), memory, kBytes, b.state());
      b.synchronize();
      CHECK(b.query());
      const auto* bytes = static_cast<const unsigned char*>(host.data());
      CHECK(bytes[0] == 7);
      CHECK(bytes[kBytes - 1] == 7);
      owner.deallocate(memory);
    });
  }

  TEST_CASE("an event tells time between two marks") {
    testing::for_each_device([](Device device) {
      const Stream stream = Stream::create(device);
      Event start(device, {.timing = true});
      Event end(device, {.timing = true});
      CHECK_THROWS_WITH_AS((void)end.elapsed_ms(start), doctest::Contains("must be recorded"),
                           StateError);
      start.record(stream);
      end.record(stream);
      end.synchronize();
      CHECK(end.query());
      CHECK(end.elapsed_ms(start) >= 0.0f);
      CHECK_THROWS_WITH_AS((void)end.elapsed_ms(Event(device)), doctest::Contains(".timing"),
                           StateError);
    });
  }

  TEST_CASE("a device that does not exist is refused") {
    if (!gpu_available()) {
      CHECK_THROWS_WITH_AS((void)Stream::create(Device::gpu()),
                           doctest::Contains("device: no GPU can be used: "), DeviceError);
    }
    CHECK_THROWS_AS((void)Stream::create(Device::gpu(15)), DeviceError);
    for (const int index : {16, 99, -1}) {
      CHECK_THROWS_WITH_AS((void)current_stream(Device::gpu(index)),
                           doctest::Contains("device: the index must be in [0, 16)"), DeviceError);
      CHECK_THROWS_AS(synchronize(Device::gpu(index)), DeviceError);
    }
  }
}

TEST_SUITE("runtime/capture_session") {
  TEST_CASE("work of a capturing stream is recorded and not run; a launch runs it each time") {
    testing::for_each_device([](Device device) {
      constexpr std::size_t kBytes = 64;
      DeviceRuntime& owner = runtime(device);
      const Stream stream = Stream::create(device);
      const GraphPool pool = graph_pool_handle(device);
      void* const memory = owner.allocate(kBytes);
      PinnedBuffer host(device, kBytes);
      const auto read = [&] {
        owner.copy(host.data(), memory, kBytes, stream.state());
        stream.synchronize();
        return *static_cast<unsigned char*>(host.data());
      };
      owner.fill(memory, 1, kBytes, stream.state());
      const Ref<CaptureSession> session = begin(stream, pool);
      CHECK(stream.is_capturing());
      owner.fill(memory, 9, kBytes, stream.state());
      const CaptureResult result = session->finish();
      CHECK_FALSE(stream.is_capturing());
      CHECK(read() == 1);
      CHECK(result.graph->node_count() == 1);
      const auto exec = result.graph->instantiate();
      exec->launch(stream.state());
      CHECK(read() == 9);
      owner.fill(memory, 2, kBytes, stream.state());
      exec->launch(stream.state());
      CHECK(read() == 9);
      owner.deallocate(memory);
    });
  }

  TEST_CASE("the default stream and a capturing stream are refused, and nothing changes") {
    testing::for_each_device([](Device device) {
      const GraphPool pool = graph_pool_handle(device);
      CHECK_THROWS_WITH_AS((void)begin(default_stream(device), pool),
                           doctest::Contains("cannot run on the default stream"), CaptureError);
      const Stream stream = Stream::create(device);
      const Ref<CaptureSession> session = begin(stream, pool);
      CHECK_THROWS_WITH_AS((void)begin(stream, pool), doctest::Contains("is already capturing"),
                           CaptureError);
      CHECK(stream.is_capturing());
      session->abandon();
      CHECK_FALSE(stream.is_capturing());
      CHECK(detail::active_captures() == 0);
    });
  }

  TEST_CASE("waiting is refused while capturing and leaves the capture valid") {
    testing::for_each_device([](Device device) {
      const Stream stream = Stream::create(device);
      const GraphPool pool = graph_pool_handle(device);
      const Event before(device);
      const Ref<CaptureSession> session = begin(stream, pool);
      const StreamGuard guard(stream);
      CHECK_THROWS_WITH_AS(stream.synchronize(),
                           doctest::Contains("stream.synchronize: not possible"), CaptureError);
      CHECK_THROWS_WITH_AS((void)stream.query(), doctest::Contains("stream.query: not possible"),
                           CaptureError);
      CHECK_THROWS_WITH_AS(synchronize(device), doctest::Contains("synchronize: not possible"),
                           CaptureError);
      CHECK_THROWS_WITH_AS((void)before.query(), doctest::Contains("event.query: not possible"),
                           CaptureError);
      CHECK_THROWS_WITH_AS(before.synchronize(), doctest::Contains("event.synchronize: not"),
                           CaptureError);
      CHECK_NOTHROW((void)session->finish());
    });
  }

  TEST_CASE("a fork joins the capture and a join gives the order back") {
    testing::for_each_device([](Device device) {
      const Stream origin = Stream::create(device);
      const Stream side = Stream::create(device);
      const GraphPool pool = graph_pool_handle(device);
      const Ref<CaptureSession> session = begin(origin, pool);
      announce(origin, "a");
      side.wait_stream(origin);
      CHECK(side.is_capturing());
      announce(side, "b");
      announce(origin, "c");
      origin.wait_stream(side);
      announce(origin, "d");
      const CaptureResult result = session->finish();
      CHECK_FALSE(side.is_capturing());
      const auto& ops = result.recording.operations;
      REQUIRE(ops.size() == 4);
      CHECK(ops[0].after.empty());
      CHECK(ops[1].after == std::vector<std::int64_t>{0});
      CHECK(ops[2].after == std::vector<std::int64_t>{0});
      CHECK(ops[3].after == std::vector<std::int64_t>{1, 2});
    });
  }

  TEST_CASE("J2: an unjoined stream is named with its last operation, and all is restored") {
    testing::for_each_device([](Device device) {
      const Stream origin = Stream::create(device);
      const Stream side = Stream::create(device);
      const GraphPool pool = graph_pool_handle(device);
      const Ref<CaptureSession> session = begin(origin, pool);
      side.wait_stream(origin);
      announce(side, "lonely");
      CHECK_THROWS_WITH_AS(
          (void)session->finish(),
          doctest::Contains(
              detail::concat("stream ", side.id(), " (last operation: lonely").c_str()),
          CaptureError);
      CHECK_FALSE(origin.is_capturing());
      CHECK_FALSE(side.is_capturing());
      CHECK(detail::active_captures() == 0);
      const Ref<CaptureSession> next = begin(origin, pool);
      CHECK_NOTHROW((void)next->finish());
    });
  }

  TEST_CASE("a wait across the border of a capture is refused") {
    testing::for_each_device([](Device device) {
      const Stream origin = Stream::create(device);
      const Stream other = Stream::create(device);
      const GraphPool pool = graph_pool_handle(device);
      const Event outside = other.record_event();
      const Ref<CaptureSession> session = begin(origin, pool);
      CHECK_THROWS_WITH_AS(origin.wait_event(outside),
                           doctest::Contains("recorded outside of the capture"), CaptureError);
      CHECK_THROWS_WITH_AS(origin.wait_stream(other), doctest::Contains("not part of the capture"),
                           CaptureError);
      CHECK_THROWS_WITH_AS(default_stream(device).wait_stream(origin),
                           doctest::Contains("default stream cannot take part"), CaptureError);
      const Event inside = origin.record_event();
      CHECK_NOTHROW((void)session->finish());
      CHECK_THROWS_WITH_AS(other.wait_event(inside), doctest::Contains("has ended"), CaptureError);
      CHECK_THROWS_WITH_AS((void)inside.query(), doctest::Contains("recorded in a capture"),
                           CaptureError);
    });
  }

  TEST_CASE("two threads capture at once") {
    const auto capture = [] {
      const Stream stream = Stream::create(Device::cpu());
      const GraphPool pool = graph_pool_handle(Device::cpu());
      for (int round = 0; round < 50; ++round) {
        const Ref<CaptureSession> session = begin(stream, pool);
        for (int i = 0; i < 20; ++i) announce(stream, "op");
        CHECK(session->finish().recording.operations.size() == 20);
      }
    };
    std::thread other(capture);
    capture();
    other.join();
    CHECK(detail::active_captures() == 0);
  }
}

#include "framework/runtime/emulated_cpu.h"

#include <doctest/doctest.h>

#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "autograd/arithmetic.h"
#include "framework/core/error.h"
#include "framework/memory/caching_allocator.h"
#include "framework/runtime/dispatch.h"
#include "framework/runtime/event.h"
#include "framework/runtime/runtime.h"
#include "framework/tensor/factory.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;
using doctest::Contains;

namespace {

const Device kDevice = Device::cpu(1);

// A byte string that two streams append to: where the bytes end up tells the order.
struct Log {
  std::string text;
  void append(char letter, const Stream& stream) {
    cpu::submit(
        stream.state(), +[](const Entry& entry) { entry.log->text += entry.letter; },
        Entry{this, letter});
  }

 private:
  struct Entry {
    Log* log;
    char letter;
  };
};

// The order in which two streams with a fork and a join run under `seed`.
std::string order_under(std::uint64_t seed) {
  const Emulated emulated({.seed = seed});
  const Stream a = Stream::create(kDevice);
  const Stream b = Stream::create(kDevice);
  Log log;
  log.append('f', a);
  b.wait_stream(a);
  log.append('1', a);
  log.append('2', a);
  log.append('x', b);
  log.append('y', b);
  a.wait_stream(b);
  log.append('j', a);
  CHECK(log.text.empty());
  a.synchronize();
  return log.text;
}

bool holds_poison(const Tensor& tensor) {
  const auto* const bytes = static_cast<const unsigned char*>(tensor.raw_data());
  return bytes[0] == 0xDB && bytes[tensor.storage()->bytes() - 1] == 0xDB;
}

}  // namespace

TEST_SUITE("runtime/emulated_cpu") {
  TEST_CASE("nothing runs before somebody waits, and every order is legal and comes about") {
    std::set<std::string> orders;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
      const std::string order = order_under(seed);
      CAPTURE(order);
      REQUIRE(order.size() == 6);
      CHECK(order.front() == 'f');
      CHECK(order.back() == 'j');
      CHECK(order.find('1') < order.find('2'));
      CHECK(order.find('x') < order.find('y'));
      orders.insert(order);
    }
    CHECK(orders.size() == 6);  // of two pairs, all that keep each pair in order
  }

  TEST_CASE("one seed gives one order") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      CHECK(order_under(seed) == order_under(seed));
    }
  }

  TEST_CASE("devices other than the CPU itself exist within an emulation alone") {
    CHECK_THROWS_WITH_AS((void)Stream::create(Device::cpu(9)),
                         Contains("device: there is one cpu, got cpu:9; tests make others with"),
                         DeviceError);
    const Emulated emulated;
    CHECK(Stream::create(Device::cpu(8)).device() == Device::parse("cpu:8"));
    CHECK_THROWS_WITH_AS(CpuEmulation(), Contains("another one lives"), StateError);
  }

  TEST_CASE("an event is done late, but it is done") {
    int late = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const Emulated emulated({.seed = seed, .late_polls = 3});
      const Stream stream = Stream::create(kDevice);
      const Event event = stream.record_event();
      stream.synchronize();  // the mark is reached
      int polls = 0;
      while (!event.query()) ++polls;
      CHECK(polls <= 3);
      if (polls != 0) ++late;
    }
    CHECK(late > 0);
    CHECK(late < 20);
  }

  TEST_CASE("asking makes progress") {
    const Emulated emulated;
    const Stream stream = Stream::create(kDevice);
    Log log;
    for (int i = 0; i < 10; ++i) log.append('x', stream);
    CHECK_FALSE(stream.query());
    CHECK(!log.text.empty());
    while (!stream.query()) continue;
    CHECK(log.text.size() == 10);
  }

  TEST_CASE("a gate holds its stream and who waits for it, and waiting there is an error") {
    const Emulated emulated;
    const Stream held = Stream::create(kDevice);
    const Stream follower = Stream::create(kDevice);
    const Stream free = Stream::create(kDevice);
    Log log;
    Gate gate(held);
    log.append('h', held);
    follower.wait_stream(held);
    log.append('w', follower);
    log.append('f', free);
    free.synchronize();
    CHECK(log.text == "f");
    const auto shut =
        detail::concat("since the gate of stream ", held.id(), " of cpu:1 is shut; call gate.open");
    CHECK_THROWS_WITH_AS(held.synchronize(), Contains(shut.c_str()), StateError);
    CHECK_THROWS_WITH_AS(follower.synchronize(), Contains(shut.c_str()), StateError);
    CHECK_THROWS_WITH_AS(synchronize(kDevice), Contains(shut.c_str()), StateError);
    CHECK_FALSE(held.query());
    CHECK(log.text == "f");
    gate.open();
    follower.synchronize();
    CHECK(log.text == "fhw");
    CHECK_THROWS_WITH_AS(Gate(default_stream(Device::cpu())),
                         Contains("only streams of emulated devices can be held, got one of cpu"),
                         DeviceError);
  }

  TEST_CASE("several threads submit and wait at once") {
    const Emulated emulated;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([t] {
        const Stream stream = Stream::create(kDevice);
        const StreamGuard guard(stream);
        const Tensor x = full({64}, t, {.device = kDevice});
        for (int i = 0; i < 50; ++i) x.add_(1.0);
        CHECK(x.sum().item() == 64.0 * (t + 50));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  TEST_CASE("the CPU itself waits for an emulated device, and the other way round") {
    const Emulated emulated;
    const Stream stream = Stream::create(kDevice);
    const Stream host = default_stream(Device::cpu());
    Log log;
    log.append('d', stream);
    host.wait_stream(stream);
    CHECK(log.text == "d");
    const Event event = host.record_event();
    stream.wait_event(event);
    CHECK_NOTHROW(stream.synchronize());
  }

  TEST_CASE("a copy from pageable memory takes the values of the call") {
    const Emulated emulated;
    float value = 3.0f;
    const Tensor x = empty({1}, {.device = kDevice});
    Gate gate(current_stream(kDevice));
    runtime(kDevice).copy(x.raw_data(), &value, sizeof(value), current_stream(kDevice).state());
    value = 4.0f;
    gate.open();
    CHECK(x.item() == 3.0);
  }

  TEST_CASE("fresh and freed memory holds poison") {
    const Emulated emulated;
    const Stream stream = Stream::create(kDevice);
    const StreamGuard guard(stream);
    const Tensor fresh = empty({3 << 20}, {.device = kDevice});  // a segment of its own
    stream.synchronize();
    CHECK(holds_poison(fresh));
    Tensor freed = ones({100}, {.device = kDevice});
    const void* const place = freed.raw_data();
    freed = Tensor();
    const Tensor next = empty({100}, {.device = kDevice});
    REQUIRE(next.raw_data() == place);
    stream.synchronize();
    CHECK(holds_poison(next));
  }

  TEST_CASE("a read of memory without a value is reported with operation, module and line") {
    const CpuEmulation emulation;
    const Tensor x = empty({2, 3}, {.device = kDevice});
    const std::string net = "net";
    {
      const ModuleScope scope(net);
      (void)(x + 1.0);
    }
    std::vector<std::string> reports = CpuEmulation::take_reports();
    REQUIRE(reports.size() == 1);
    CHECK(reports[0].find("add of stream ") == 0);
    CHECK(reports[0].find("in net (at ") != std::string::npos);
    CHECK(reports[0].find("emulated_cpu_test.cpp:") != std::string::npos);
    CHECK(reports[0].find("reads float32[2, 3] (24 bytes), which was ") != std::string::npos);

    x.slice(0, 0, 1).fill_(1.0);
    (void)(x.slice(0, 0, 1) + 1.0);  // written
    CHECK(CpuEmulation::take_reports().empty());
    (void)(x.slice(1, 1, 3) + 1.0);  // in part
    CHECK(CpuEmulation::take_reports().size() == 1);
    x.slice(0, 1, 2).fill_(1.0);
    (void)(x.slice(1, 1, 3) + 1.0);
    CHECK(CpuEmulation::take_reports().empty());

    Tensor y = ones({64}, {.device = kDevice});
    const Tensor dangling = from_blob(y.raw_data(), {64}, {.device = kDevice});
    y = Tensor();
    (void)dangling.sum();
    reports = CpuEmulation::take_reports();
    REQUIRE(reports.size() == 1);
    CHECK(reports[0].find("sum of stream ") == 0);
    CHECK(reports[0].find("which was freed and not written since") != std::string::npos);
  }

  TEST_CASE("by option a report is thrown, and the operation does not run") {
    const CpuEmulation emulation({.throw_reports = true});
    const Tensor x = zeros({4}, {.device = kDevice});
    const Stream side = Stream::create(kDevice);
    {
      const StreamGuard guard(side);
      CHECK_THROWS_WITH_AS(x.add_(1.0), Contains("must wait for stream"), StateError);
      side.wait_stream(default_stream(kDevice));
      CHECK_NOTHROW(x.add_(1.0));
      CHECK(x.sum().item() == 4.0);
    }
  }

  TEST_CASE("memory given back by the allocator while work is queued outlives that work") {
    const Emulated emulated;
    DeviceRuntime& owner = runtime(kDevice);
    const Stream stream = Stream::create(kDevice);
    void* const memory = owner.allocate(4096);
    Gate gate(stream);
    owner.fill(memory, 1, 4096, stream.state());
    owner.deallocate(memory);
    gate.open();
    CHECK_NOTHROW(stream.synchronize());
  }
}

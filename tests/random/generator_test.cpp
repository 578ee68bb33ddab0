#include "framework/random/generator.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "framework/core/error.h"
#include "framework/memory/caching_allocator.h"
#include "framework/runtime/capture_session.h"
#include "framework/runtime/stream.h"
#include "framework/tensor/write_journal.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::for_each_device;

// A capture that is current on this thread, in a pool of its own.
class Capture {
 public:
  explicit Capture(Device device = Device::cpu())
      : stream_(Stream::create(device)),
        pool_(graph_pool_handle(device, "random")),
        session_(CaptureSession::begin(stream_, {.pool = pool_.id()})),
        current_(stream_) {}
  ~Capture() { session_->abandon(); }
  CaptureResult finish() { return session_->finish(); }

 private:
  Stream stream_;
  GraphPool pool_;
  Ref<CaptureSession> session_;
  StreamGuard current_;
};

void replay(const CaptureResult& capture, const Stream& stream) {
  for (const auto& prologue : capture.prologues) prologue->before_replay(stream.state());
}
void replay(const CaptureResult& capture) { replay(capture, default_stream(Device::cpu())); }

// What a kernel on `stream` finds behind `args.captured`.
GeneratorState found_by_kernel(const PhiloxArgs& args, const Stream& stream) {
  std::array<std::uint64_t, 2> words{};
  stream.state().runtime.copy(words.data(), args.captured, sizeof words, stream.state());
  stream.synchronize();
  return {words[0], words[1]};
}

std::int64_t private_bytes(Device device) {
  std::int64_t bytes = 0;
  for (const PoolReport& pool : allocator(device).stats().pools) {
    if (pool.id != 0) bytes += pool.stats.reserved_bytes;
  }
  return bytes;
}

}  // namespace

TEST_SUITE("random/generator") {
  TEST_CASE("reserve hands out seed and offset and moves on by whole blocks of four") {
    const Generator generator(42);
    const PhiloxArgs first = generator.reserve(5);
    CHECK(first.seed == 42);
    CHECK(first.offset == 0);
    CHECK(first.captured == nullptr);
    CHECK(generator.reserve(4).offset == 8);
    CHECK(generator.reserve(0).offset == 12);
    CHECK(generator.reserve(1).offset == 12);
    CHECK(generator.state() == GeneratorState{42, 16});
    CHECK_THROWS_WITH_AS((void)generator.reserve(-1),
                         doctest::Contains("generator.reserve: cannot take -1 numbers"),
                         ValueError);
    CHECK(generator.state() == GeneratorState{42, 16});
  }

  TEST_CASE("copies share the state; manual_seed restarts it") {
    const Generator generator(1);
    const Generator copy = generator;
    (void)copy.reserve(8);
    CHECK(generator.state() == GeneratorState{1, 8});
    generator.manual_seed(9);
    CHECK(copy.state() == GeneratorState{9, 0});
    CHECK(copy.seed() == 9);
  }

  TEST_CASE("a saved state restores the sequence") {
    const Generator generator(3);
    (void)generator.reserve(100);
    const GeneratorState saved = generator.state();
    const std::uint64_t offset = generator.reserve(7).offset;
    generator.set_state(saved);
    CHECK(generator.reserve(7).offset == offset);
    CHECK_THROWS_WITH_AS(generator.set_state({3, 6}),
                         doctest::Contains("the offset must be a multiple of 4, got 6"),
                         ValueError);
    CHECK(generator.state() == GeneratorState{3, 108});
  }

  TEST_CASE("threads never get the same numbers") {
    const Generator generator(3);
    std::vector<std::vector<std::uint64_t>> offsets(4);
    std::vector<std::thread> threads;
    for (auto& own : offsets) {
      threads.emplace_back([&own, generator] {
        for (int i = 0; i < 1000; ++i) own.push_back(generator.reserve(3).offset);
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::set<std::uint64_t> all;
    for (const auto& own : offsets) all.insert(own.begin(), own.end());
    CHECK(all.size() == 4000);
    CHECK(generator.state().offset == 16000);
  }

  TEST_CASE("a capture does not move the state; each replay does, as the eager run would") {
    for_each_device([](Device device) {
      const Generator generator(11, device);
      (void)generator.reserve(4);
      CaptureResult result;
      PhiloxArgs first;
      PhiloxArgs second;
      {
        Capture capture(device);
        const std::int64_t before = private_bytes(device);
        first = generator.reserve(6);
        second = generator.reserve(4);
        CHECK(private_bytes(device) == before);  // the words live in the common pool
        result = capture.finish();
      }
      CHECK(generator.state() == GeneratorState{11, 4});
      REQUIRE(result.prologues.size() == 1);
      REQUIRE(first.captured != nullptr);
      CHECK(second.captured == first.captured);
      CHECK(first.offset == 0);
      CHECK(second.offset == 8);

      const Stream stream = Stream::create(device);
      replay(result, stream);
      CHECK(found_by_kernel(first, stream) == GeneratorState{11, 4});
      CHECK(generator.state() == GeneratorState{11, 16});
      CHECK(generator.reserve(4).offset == 16);
      replay(result, stream);
      CHECK(found_by_kernel(first, stream) == GeneratorState{11, 20});
      CHECK(generator.state() == GeneratorState{11, 32});
      generator.manual_seed(12);
      replay(result, stream);
      CHECK(found_by_kernel(first, stream) == GeneratorState{12, 0});
    });
  }

  TEST_CASE("two generators of one capture keep their own words, and a graph outlives its handle") {
    CaptureResult result;
    PhiloxArgs a;
    PhiloxArgs b;
    {
      const Generator one(1);
      const Generator two(2);
      Capture capture;
      a = one.reserve(4);
      b = two.reserve(4);
      result = capture.finish();
    }
    CHECK(result.prologues.size() == 2);
    CHECK(a.captured != b.captured);
    replay(result);
    CHECK(a.key() == 1);
    CHECK(b.key() == 2);
  }

  TEST_CASE("the words of a dropped graph go back to the allocator") {
    const Generator generator(1);
    CachingAllocator& memory = allocator(Device::cpu());
    const std::int64_t before = memory.stats().total.blocks;
    {
      CaptureResult result;
      {
        Capture capture;
        (void)generator.reserve(4);
        result = capture.finish();
      }
      CHECK(memory.stats().total.blocks == before + 1);
    }
    CHECK(memory.stats().total.blocks == before);
    {
      Capture capture;  // given up
      (void)generator.reserve(4);
    }
    CHECK(memory.stats().total.blocks == before);
    CHECK(generator.state() == GeneratorState{1, 0});
  }

  TEST_CASE("seeding anew in a capture, or setting a state from outside, is refused") {
    const Generator generator(1);
    (void)default_generator(Device::cpu());
    {
      const Capture capture;
      const auto says = [](const char* text) { return doctest::Contains(text); };
      CHECK_THROWS_WITH_AS(generator.manual_seed(2), says("generator.manual_seed: not possible"),
                           CaptureError);
      CHECK_THROWS_WITH_AS(generator.set_state({2, 0}), says("generator.set_state: not possible"),
                           CaptureError);
      CHECK_THROWS_WITH_AS(manual_seed(2), says("manual_seed: not possible"), CaptureError);
      CHECK(generator.seed() == 1);
      std::thread([&] { generator.manual_seed(5); }).join();  // no capture on that thread
    }
    CHECK(generator.state() == GeneratorState{5, 0});
  }

  TEST_CASE("manual_seed_mismatch: the current seed may be set in a capture, and changes nothing") {
    const Generator generator(1);
    Capture capture;
    CHECK(generator.reserve(4).offset == 0);
    CHECK_NOTHROW(generator.manual_seed(1));
    CHECK(generator.reserve(4).offset == 4);
    CHECK_THROWS_AS(generator.manual_seed(2), CaptureError);
    replay(capture.finish());
    CHECK(generator.state() == GeneratorState{1, 8});
  }

  TEST_CASE("a state saved in a capture leads back to the same numbers there") {
    const Generator generator(9);
    Capture capture;
    (void)generator.reserve(8);
    const GeneratorState saved = generator.state();
    const PhiloxArgs first = generator.reserve(4);
    CHECK(!(generator.state() == saved));
    generator.set_state(saved);
    CHECK(generator.state() == saved);
    const PhiloxArgs again = generator.reserve(4);
    CHECK(again.offset == first.offset);
    CHECK(again.captured == first.captured);
    replay(capture.finish());
    CHECK(generator.state() == GeneratorState{9, 12});  // the last position, as eager
  }

  TEST_CASE("a state saved in one capture is read from its words in another one") {
    const Generator generator(9);
    GeneratorState saved;
    PhiloxArgs first;
    CaptureResult forward;
    {
      Capture capture;
      (void)generator.reserve(4);
      saved = generator.state();
      first = generator.reserve(12);
      forward = capture.finish();
    }
    CaptureResult backward;
    {
      Capture capture;
      const GeneratorState own = generator.state();
      CHECK(!(own == saved));
      generator.set_state(saved);
      CHECK(generator.state() == saved);
      const PhiloxArgs again = generator.reserve(8);
      CHECK(again.offset == first.offset);
      CHECK(again.captured == first.captured);
      CHECK(generator.reserve(4).offset == first.offset + 8);
      generator.set_state(own);
      const PhiloxArgs after = generator.reserve(4);
      CHECK(after.offset == 0);
      CHECK(after.captured != first.captured);
      backward = capture.finish();
    }
    const RefCounted* const words = saved.capture.get();
    saved = {};
    forward = {};
    CHECK(words->use_count() == 1);  // by the second capture
    replay(backward);
    CHECK(generator.state() == GeneratorState{9, 4});
  }

  TEST_CASE("a capture must not end at another capture's state") {
    const Generator generator(9);
    GeneratorState saved;
    {
      const Capture capture;
      saved = generator.state();
    }
    Capture capture;
    generator.set_state(saved);
    CHECK_THROWS_WITH_AS((void)capture.finish(),
                         doctest::Contains("capture_end: the generator of cpu is left at a state"),
                         CaptureError);
    CHECK(!is_current_stream_capturing());
  }

  TEST_CASE("a state saved in a capture is refused outside") {
    const Generator generator(9);
    GeneratorState saved;
    {
      const Capture capture;
      saved = generator.state();
    }
    CHECK_THROWS_WITH_AS(generator.set_state(saved),
                         doctest::Contains("the state was saved in a capture"), ValueError);
    CHECK(generator.state() == GeneratorState{9, 0});
  }

  TEST_CASE("a journal rolls draws, seeds and replays back") {
    const Generator generator(7);
    CaptureResult result;
    {
      Capture capture;
      (void)generator.reserve(4);
      result = capture.finish();
    }
    (void)generator.reserve(8);
    {
      WriteJournal journal;
      (void)generator.reserve(4);
      replay(result);
      generator.manual_seed(1);
      generator.set_state({2, 4});
      CHECK(generator.state() == GeneratorState{2, 4});
      journal.rollback();
    }
    CHECK(generator.state() == GeneratorState{7, 8});
  }

  TEST_CASE("manual_seed reaches the default generators, which are one per device") {
    const Generator generator = default_generator(Device::cpu());
    manual_seed(123);
    (void)generator.reserve(4);
    CHECK(default_generator(Device::cpu()).state() == GeneratorState{123, 4});
    manual_seed(Generator::kDefaultSeed);
    CHECK(generator.state() == GeneratorState{Generator::kDefaultSeed, 0});
  }
}

}  // namespace capstan

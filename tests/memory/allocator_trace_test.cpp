#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "framework/core/error.h"
#include "framework/memory/allocator_impl.h"
#include "framework/memory/caching_allocator.h"
#include "framework/runtime/capture_session.h"
#include "framework/runtime/event.h"
#include "tests/memory/fake_runtime.h"
#include "tests/memory/snapshot_walk.h"

namespace capstan {
namespace {

using testing::FakeRuntime;
using testing::kMiB;
using testing::new_stream;
using testing::occurrences;
using testing::Segments;
using testing::walk_of;
using testing::Walked;

constexpr std::size_t kStreams = 4;

// SplitMix64: cheap to seed, so that every step can have a seed of its own.
struct Random {
  std::uint64_t state = 0;
  std::uint64_t operator()() {
    state += 0x9e3779b97f4a7c15;
    std::uint64_t x = state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
};

// What a step does depends on the seed, its number and the state alone, so steps can be left out.
using Steps = std::vector<std::uint32_t>;

struct TraceOptions {
  std::uint64_t seed = 0;
  Segments segments = Segments::plain;
  std::size_t most_live = 150;      // blocks; from there on they are freed
  std::size_t allowed_live = 1000;  // more are a planted fault
};

// A program over several streams and pools, made from a seed, beside a model of what each stream
// has seen. A capture forks and joins through the session's own clocks.
class Trace {
 public:
  explicit Trace(const TraceOptions& options)
      : options_(options), fake_(600 * kMiB, options.segments), memory_(fake_) {
    for (std::size_t i = 0; i < kStreams; ++i) {
      streams_.push_back(Stream(make_ref<StreamState>(fake_, nullptr, 0, false)));
    }
    pools_ = {memory_.create_pool("a"), memory_.create_pool("b")};
  }

  /// Number of violated invariants; after the first step with any nothing more is tried.
  int run(const Steps& steps, std::size_t walk_every = 1000) {
    int wrong = 0;
    for (done_ = 0; done_ < steps.size() && wrong == 0; ++done_) {
      random_.state = options_.seed * 0x2545f4914f6cdd1d + steps[done_];
      wrong += step() + (live_.size() > options_.allowed_live);
      if (done_ % walk_every == 0) wrong += walk();
    }
    end_capture();
    for (const Stream& stream : streams_) fake_.open(stream);
    for (Live& live : live_) memory_.free(live.block);
    live_.clear();
    (void)memory_.empty_cache();
    wrong += walk();
    wrong += memory_.stats().total.blocks != 0 || memory_.stats().awaiting_bytes != 0;
    wrong += memory_.stats().pools.at(0).stats.reserved_bytes != 0;
    for (const std::uint64_t pool : pools_) memory_.release_pool(pool);
    wrong += fake_.used() != 0 || fake_.bad_deallocations != 0;
    wrong += memory_.stats().pools.size() != 1;
    wrong += fake_.events_in_capture != 0 || fake_.bad_mappings != 0;
    wrong += fake_.live_segments() != 0;
    return wrong;
  }

  /// Steps tried.
  [[nodiscard]] std::size_t done() const { return done_; }

  [[nodiscard]] std::int64_t refused() const { return refused_; }
  [[nodiscard]] std::int64_t captures() const { return captures_; }

 private:
  struct Live {
    Block* block;
    std::size_t bytes;
    std::map<std::size_t, std::int64_t> uses;  // in the capture of the block: stream, its count
    std::uint64_t capture = 0;
    bool elsewhere = false;  // used on another stream outside of its capture
  };
  // Freed within a capture while some use came before no work of the block's stream.
  struct Ghost {
    const std::byte* begin;
    const std::byte* end;
    std::uint64_t stream;
    std::vector<CaptureSession::Position> uses;
  };

  std::size_t pick(std::size_t n) { return random_() % n; }
  [[nodiscard]] bool joined(std::size_t stream) const {
    return streams_[stream].state().session() != nullptr;
  }

  int step() {
    switch (pick(12)) {
      case 0:
      case 1:
      case 2:
      case 3: return allocate();
      case 4:
      case 5:
      case 6: return release();
      case 7:
      case 8: use(); return 0;
      case 9: gate(); return 0;
      case 10: order(); return 0;
      default: pick(20) == 0 ? toggle_capture() : order(); return 0;
    }
  }

  int allocate() {
    if (live_.size() > options_.most_live) return release();
    const std::size_t bytes = 1 + random_() % (std::size_t{1} << pick(25));
    const std::size_t stream = pick(kStreams);
    Block* block = nullptr;
    try {
      block = memory_.allocate(bytes, streams_[stream].state());
    } catch (const OutOfMemory&) {
      ++refused_;
      return 0;
    }
    int wrong = block->free || block->awaiting || block->bytes < bytes;
    wrong += block->stream != streams_[stream].id();
    wrong += CachingAllocator::pool_of(block) != (joined(stream) ? session_->pool() : 0);
    for (const Live& other : live_) {
      wrong += block->address < other.block->address + other.block->bytes &&
               other.block->address < block->address + block->bytes;
    }
    for (const Ghost& ghost : ghosts_) {
      if (block->address >= ghost.end || ghost.begin >= block->address + block->bytes) continue;
      for (const CaptureSession::Position& use : ghost.uses) {
        wrong += !session_ || !session_->precedes(use, block->stream);
      }
    }
    live_.push_back({block, bytes, {}, joined(stream) ? session_->id() : 0});
    return wrong;
  }

  void use() {
    if (live_.empty()) return;
    Live& live = live_[pick(live_.size())];
    const std::size_t stream = pick(kStreams);
    StreamState& state = streams_[stream].state();
    if (session_ && joined(stream) && live.capture == session_->id()) {
      session_->announce("use", state, {}, {}, {});
      memory_.record_operation(live.block, state, *session_);
      if (state.id != live.block->stream) live.uses[stream] = session_->position(state).count;
    } else {
      memory_.record_stream(live.block, state);
      live.elsewhere = live.elsewhere || state.id != live.block->stream;
    }
  }

  int release() {
    if (live_.empty()) return 0;
    std::swap(live_[pick(live_.size())], live_.back());
    const Live live = std::move(live_.back());
    live_.pop_back();
    const int wrong = live.block->requested != live.bytes;
    if (session_ && live.capture == session_->id() && !live.uses.empty()) {
      Ghost ghost{
          live.block->address, live.block->address + live.block->bytes, live.block->stream, {}};
      for (const auto& [stream, count] : live.uses) {
        ghost.uses.push_back({session_->position(streams_[stream].state()).member, count});
      }
      ghosts_.push_back(std::move(ghost));
    }
    // With no use on another stream the memory is free at once.
    const bool plain = live.block->uses == nullptr;
    const std::int64_t blocks = memory_.stats().total.blocks;
    memory_.free(live.block);
    return wrong + (plain && memory_.stats().total.blocks != blocks - 1);
  }

  void gate() {
    const Stream& stream = streams_[pick(kStreams)];
    pick(3) == 0 ? fake_.shut(stream) : fake_.open(stream);
  }

  void order() {
    if (!session_) return;
    const std::size_t from = pick(kStreams);
    const std::size_t to = pick(kStreams);
    if (from == to || !joined(from)) return;
    session_->join(streams_[to].state(), session_->mark(streams_[from].state()));
  }

  void toggle_capture() {
    if (session_) return end_capture();
    ++captures_;
    session_ = CaptureSession::begin(streams_[pick(kStreams)], {.pool = pools_[pick(2)]});
  }

  void end_capture() {
    if (session_) session_->abandon();
    session_ = nullptr;
    ghosts_.clear();
  }

  // Sums and neighbours of all blocks, as found in the segments.
  int walk() {
    int wrong = 0;
    const AllocatorStats stats = memory_.stats();
    PoolStats sum;
    for (const PoolReport& pool : stats.pools) {
      sum.reserved_bytes += pool.stats.reserved_bytes;
      sum.allocated_bytes += pool.stats.allocated_bytes;
      sum.blocks += pool.stats.blocks;
      sum.segments += pool.stats.segments;
    }
    wrong += sum.reserved_bytes != stats.total.reserved_bytes;
    wrong += sum.allocated_bytes != stats.total.allocated_bytes || sum.blocks != stats.total.blocks;
    wrong += static_cast<std::size_t>(sum.reserved_bytes) != fake_.used();
    wrong += static_cast<std::size_t>(sum.segments) != fake_.live_segments();
    if (sum.segments != 0) {
      const Walked walked = walk_of(memory_.snapshot());
      wrong += walked.reserved != sum.reserved_bytes || walked.handed != sum.allocated_bytes;
      wrong += walked.gaps != 0 || walked.segments != sum.segments;
    }
    std::int64_t handed = 0;
    for (const Live& live : live_) handed += static_cast<std::int64_t>(live.block->bytes);
    wrong += handed + stats.awaiting_bytes != stats.total.allocated_bytes;
    for (const Live& live : live_) {
      const Block* first = live.block;
      while (first->previous != nullptr) first = first->previous;
      for (const Block* block = first; block != nullptr; block = block->next) {
        const Block* next = block->next;
        if (next == nullptr) continue;
        wrong += next->previous != block || next->address != block->address + block->bytes;
        wrong += block->free && next->free && block->captured == next->captured &&
                 block->stream == next->stream;
      }
    }
    return wrong;
  }

  const TraceOptions options_;
  Random random_;
  std::size_t done_ = 0;
  FakeRuntime fake_;
  CachingAllocator memory_;
  std::vector<Stream> streams_;
  std::array<std::uint64_t, 2> pools_{};
  Ref<CaptureSession> session_;
  std::vector<Live> live_;
  std::vector<Ghost> ghosts_;
  std::int64_t refused_ = 0;
  std::int64_t captures_ = 0;
};

Steps first_steps(std::size_t count) {
  Steps steps(count);
  std::iota(steps.begin(), steps.end(), 0u);
  return steps;
}

// The steps of a failing trace without those it also fails without.
Steps shrunk(const TraceOptions& options, Steps steps) {
  Trace whole(options);
  (void)whole.run(steps, 1);
  steps.resize(whole.done());
  int tries = 500;  // good enough, and never an hour
  for (std::size_t part = std::max<std::size_t>(steps.size() / 2, 1); part != 0; part /= 2) {
    for (std::size_t at = 0; at < steps.size() && tries-- > 0;) {
      Steps fewer = steps;
      const auto begin = fewer.begin() + static_cast<std::ptrdiff_t>(at);
      fewer.erase(begin, begin + static_cast<std::ptrdiff_t>(std::min(part, steps.size() - at)));
      if (Trace(options).run(fewer, 1) != 0) {
        steps = std::move(fewer);
      } else {
        at += part;
      }
    }
  }
  return steps;
}

std::string listed(const Steps& steps) {
  std::string text;
  for (const std::uint32_t step : steps) text += std::to_string(step) + ' ';
  return text;
}

}  // namespace

TEST_SUITE("memory/allocator_trace") {
  TEST_CASE("a million operations over streams, pools and captures keep every invariant") {
    std::int64_t refused = 0;
    std::int64_t captures = 0;
    for (const Segments segments : {Segments::plain, Segments::growable}) {
      for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        const TraceOptions options{.seed = seed, .segments = segments};
        const Steps steps = first_steps(25'000);
        Trace trace(options);
        const int wrong = trace.run(steps);
        if (wrong != 0) {
          const std::string kind = segments == Segments::plain ? ", plain" : ", growable";
          const std::string where = listed(shrunk(options, steps));
          FAIL_CHECK("seed " << seed << kind << ": fails in the steps " << where);
        }
        refused += trace.refused();
        captures += trace.captures();
      }
    }
    CHECK(refused > 0);
    CHECK(captures > 1000);
  }

  TEST_CASE("a failing trace shrinks to the steps that make it fail") {
    const TraceOptions options{.seed = 1, .segments = Segments::growable, .allowed_live = 5};
    const Steps steps = shrunk(options, first_steps(2'000));
    CHECK(steps.size() == 6);
    CHECK(Trace(options).run(steps) != 0);
  }

  TEST_CASE("G9: two streams share 60% of the device without failing for fragments") {
    for (int round = 0; round < 20; ++round) {
      const Segments segments = round % 2 == 0 ? Segments::plain : Segments::growable;
      CAPTURE(round);
      FakeRuntime fake(1024 * kMiB, segments);
      CachingAllocator memory(fake);
      const std::array<Stream, 2> streams{new_stream(fake), new_stream(fake)};
      std::mt19937_64 random(static_cast<unsigned>(round / 2 + 3));
      std::vector<Block*> live;
      std::size_t bytes = 0;
      int failed = 0;
      for (int i = 0; i < 20'000; ++i) {
        const std::size_t wanted = kMiB + random() % (15 * kMiB);
        if (bytes + wanted <= 614 * kMiB && (live.empty() || random() % 2 == 0)) {
          try {
            live.push_back(memory.allocate(wanted, streams[random() % 2].state()));
            bytes += live.back()->requested;
          } catch (const OutOfMemory&) {
            ++failed;
          }
        } else {
          std::swap(live[random() % live.size()], live.back());
          bytes -= live.back()->requested;
          memory.free(live.back());
          live.pop_back();
        }
        if (i % 100 == 0) fake.synchronize_device();
      }
      CHECK(failed == 0);
      for (Block* block : live) memory.free(block);
      const std::string json = memory.snapshot();
      const PoolStats all = memory.stats().total;
      CHECK(all.blocks == 0);
      CHECK(occurrences(json, "\"state\":\"in_use\"") == 0);
      CHECK(occurrences(json, "\"state\":\"free\"") ==
            all.segments + occurrences(json, "\"state\":\"unmapped\""));
      CHECK(memory.empty_cache().bytes == static_cast<std::size_t>(all.reserved_bytes));
      CHECK(fake.used() == 0);
      CHECK(fake.live_segments() == 0);
    }
  }
}

}  // namespace capstan

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
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

namespace capstan {
namespace {

using testing::FakeRuntime;
using testing::kMiB;

constexpr std::size_t kStreams = 4;

// A program over several streams and pools, made from a seed, beside a model of what each stream
// has seen. A capture forks and joins through the session's own clocks.
class Trace {
 public:
  explicit Trace(std::uint64_t seed) : random_(seed), fake_(600 * kMiB), memory_(fake_) {
    for (std::size_t i = 0; i < kStreams; ++i) {
      streams_.push_back(Stream(make_ref<StreamState>(fake_, nullptr, 0, false)));
    }
    pools_ = {memory_.create_pool("a"), memory_.create_pool("b")};
  }

  /// Number of violated invariants.
  int run(int steps) {
    int wrong = 0;
    for (int i = 0; i < steps; ++i) {
      wrong += step();
      if (i % 1000 == 0) wrong += walk();
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
    wrong += fake_.events_in_capture != 0;
    return wrong;
  }

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
    if (live_.size() > 150) return release();
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

  std::mt19937_64 random_;
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

}  // namespace

TEST_SUITE("memory/allocator_trace") {
  TEST_CASE("a million operations over streams, pools and captures keep every invariant") {
    std::int64_t refused = 0;
    std::int64_t captures = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      CAPTURE(seed);
      Trace trace(seed);
      CHECK(trace.run(50'000) == 0);
      refused += trace.refused();
      captures += trace.captures();
    }
    CHECK(refused > 0);
    CHECK(captures > 1000);
  }

  TEST_CASE("G9: two streams share 60% of the device without failing for fragments") {
    FakeRuntime fake(1024 * kMiB);
    CachingAllocator memory(fake);
    const std::array<Stream, 2> streams{Stream(make_ref<StreamState>(fake, nullptr, 0, false)),
                                        Stream(make_ref<StreamState>(fake, nullptr, 0, false))};
    std::mt19937_64 random(3);
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
    }
    CHECK(failed == 0);
    for (Block* block : live) memory.free(block);
    const PoolStats all = memory.stats().total;
    CHECK(memory.empty_cache().bytes == static_cast<std::size_t>(all.reserved_bytes));
    CHECK(fake.used() == 0);
  }
}

}  // namespace capstan

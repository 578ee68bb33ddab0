#include "framework/memory/block_pool.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace capstan {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Serves requests from a pool and makes segments at addresses of its own choice.
struct Source {
  PoolStats total;
  BlockPool pool{7, total};
  std::uintptr_t next = kMiB;

  Block* get(std::size_t bytes, std::uint64_t stream) {
    if (Block* block = pool.take(bytes, stream)) return block;
    pool.add_segment(reinterpret_cast<void*>(next), bytes, stream);
    next += segment_size(bytes);
    return pool.take(bytes, stream);
  }
};

// Number of violated invariants, so that a long trace makes one assertion per look.
int violations(const BlockPool& pool) {
  int found = 0;
  PoolStats sum;
  std::size_t free_blocks = 0;
  for (const Block* first : pool.segments()) {
    found += first->previous != nullptr;
    ++sum.segments;
    for (const Block* block = first; block != nullptr; block = block->next) {
      sum.reserved_bytes += static_cast<std::int64_t>(block->bytes);
      found += block->bytes == 0 || block->bytes % kBlockAlignment != 0;
      found += block->stream != first->stream || block->small != first->small;
      if (block->free) {
        ++free_blocks;
      } else {
        ++sum.blocks;
        sum.allocated_bytes += static_cast<std::int64_t>(block->bytes);
        sum.requested_bytes += static_cast<std::int64_t>(block->requested);
        found += block->requested > block->bytes;
      }
      if (const Block* next = block->next) {
        found += next->previous != block;
        found += next->address != block->address + block->bytes;
        found += block->free && next->free;
      }
    }
  }
  const PoolStats& stats = pool.stats();
  found += sum.segments != stats.segments || sum.blocks != stats.blocks;
  found += sum.reserved_bytes != stats.reserved_bytes;
  found += sum.allocated_bytes != stats.allocated_bytes;
  found += sum.requested_bytes != stats.requested_bytes;
  found += free_blocks != pool.free_blocks();
  found += stats.peak_allocated_bytes < stats.allocated_bytes;
  return found;
}

}  // namespace

TEST_SUITE("memory/block_pool") {
  TEST_CASE("requests round up to 512 bytes") {
    CHECK(block_size(1) == 512);
    CHECK(block_size(512) == 512);
    CHECK(block_size(513) == 1024);
    CHECK(block_size(kMiB) == kMiB);
  }

  TEST_CASE("segments are 2 MiB, 20 MiB, or the request rounded up to 2 MiB") {
    CHECK(segment_size(1) == 2 * kMiB);
    CHECK(segment_size(kMiB) == 2 * kMiB);
    CHECK(segment_size(kMiB + 1) == 20 * kMiB);
    CHECK(segment_size(10 * kMiB) == 20 * kMiB);
    CHECK(segment_size(10 * kMiB + 1) == 12 * kMiB);
    CHECK(segment_size(64 * kMiB) == 64 * kMiB);
  }

  TEST_CASE("a request splits a block and the rest stays free behind it") {
    Source source;
    const Block* a = source.get(100, 1);
    const Block* b = source.get(600, 1);
    CHECK(a->bytes == 512);
    CHECK(a->requested == 100);
    CHECK(b->bytes == 1024);
    CHECK(b->address == a->address + 512);
    REQUIRE(b->next != nullptr);
    CHECK(b->next->free);
    CHECK(b->next->bytes == 2 * kMiB - 1536);
    CHECK(source.pool.stats().allocated_bytes == 1536);
    CHECK(source.pool.stats().requested_bytes == 700);
    CHECK(violations(source.pool) == 0);
  }

  TEST_CASE("a large block keeps a rest of up to 1 MiB") {
    Source source;
    const Block* first = source.get(10 * kMiB, 1);
    const Block* kept = source.get(9 * kMiB, 1);
    CHECK(first->bytes == 10 * kMiB);
    CHECK(kept->bytes == 10 * kMiB);  // the rest would be 1 MiB
    const Block* other = source.get(9 * kMiB - 512, 1);
    CHECK(other->bytes == 9 * kMiB - 512);  // in a new segment of 20 MiB
    CHECK(source.pool.stats().segments == 2);
  }

  TEST_CASE("a freed block merges with both neighbours") {
    Source source;
    Block* a = source.get(512, 1);
    Block* b = source.get(512, 1);
    Block* c = source.get(512, 1);
    Block* d = source.get(512, 1);
    source.pool.give_back(a);
    source.pool.give_back(c);
    CHECK(source.pool.free_blocks() == 3);
    source.pool.give_back(b);
    CHECK(source.pool.free_blocks() == 2);
    CHECK(violations(source.pool) == 0);
    source.pool.give_back(d);
    CHECK(source.pool.free_blocks() == 1);
    const auto segment = source.pool.remove_free_segment();
    REQUIRE(segment.has_value());
    CHECK(segment->bytes == 2 * kMiB);
    CHECK(source.pool.stats().reserved_bytes == 0);
    CHECK_FALSE(source.pool.remove_free_segment().has_value());
  }

  TEST_CASE("the smallest block that fits is taken, the lowest address among equals") {
    Source source;
    std::vector<Block*> blocks;
    for (const std::size_t bytes : {4096, 512, 1024, 512, 1024, 512}) {
      blocks.push_back(source.get(bytes, 1));
    }
    const std::byte* lower = blocks[2]->address;
    source.pool.give_back(blocks[4]);
    source.pool.give_back(blocks[0]);
    source.pool.give_back(blocks[2]);
    CHECK(source.get(700, 1)->address == lower);
  }

  TEST_CASE("blocks serve only the stream they were cut for") {
    Source source;
    Block* block = source.get(512, 1);
    const std::byte* address = block->address;
    source.pool.give_back(block);
    CHECK(source.pool.take(512, 2) == nullptr);
    Block* again = source.pool.take(512, 1);
    REQUIRE(again != nullptr);
    CHECK(again->address == address);
  }

  TEST_CASE("a segment with a live block is not given back") {
    Source source;
    Block* a = source.get(3 * kMiB, 1);
    const Block* b = source.get(3 * kMiB, 1);
    source.pool.give_back(a);
    CHECK_FALSE(source.pool.has_free_segment());
    CHECK_FALSE(source.pool.remove_free_segment().has_value());
    CHECK_FALSE(b->free);
  }

  TEST_CASE("blocks tile their segments through a long random trace") {
    Source source;
    std::mt19937_64 random(20240229);
    struct Live {
      Block* block;
      std::size_t bytes;
      std::uint64_t stream;
    };
    std::vector<Live> live;
    int wrong = 0;
    for (int step = 0; step < 300'000; ++step) {
      const bool grow = live.size() < 20 || (live.size() < 400 && random() % 2 == 0);
      if (grow) {
        const std::size_t scale = std::size_t{1} << (random() % 24);
        const std::size_t bytes = 1 + random() % scale;
        const std::uint64_t stream = 1 + random() % 3;
        Block* block = source.get(bytes, stream);
        wrong += block == nullptr || block->free || block->bytes < bytes;
        wrong += block->stream != stream || block->pool != &source.pool;
        live.push_back({block, bytes, stream});
      } else {
        std::swap(live[random() % live.size()], live.back());
        wrong += live.back().block->requested != live.back().bytes;
        source.pool.give_back(live.back().block);
        live.pop_back();
      }
      if (step % 5000 == 0) {
        while (random() % 3 == 0 && source.pool.remove_free_segment()) {
        }
        wrong += violations(source.pool);
      }
    }
    for (const Live& item : live) source.pool.give_back(item.block);
    wrong += violations(source.pool);
    CHECK(wrong == 0);
    CHECK(source.pool.stats().allocated_bytes == 0);
    while (source.pool.remove_free_segment()) {
    }
    CHECK(source.pool.stats().segments == 0);
    CHECK(source.total.reserved_bytes == 0);
    CHECK(source.pool.free_blocks() == 0);
  }
}

}  // namespace capstan

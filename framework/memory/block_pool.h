#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "framework/memory/caching_allocator.h"

// Free-list arithmetic: which piece of which segment serves a request. No device calls and no
// locks; addresses are only computed with, never read.
namespace capstan {

class BlockPool;
struct BlockUses;

/// The `stream` of free blocks that no stream owns: whichever stream of a capture asks first has
/// them.
inline constexpr std::uint64_t kAnyStream = 0;

/// A piece of a segment. Neighbours are the pieces before and after it in the same segment.
struct Block {
  std::byte* address = nullptr;
  std::size_t bytes = 0;
  std::size_t requested = 0;
  std::uint64_t stream = 0;
  Block* previous = nullptr;
  Block* next = nullptr;
  BlockPool* pool = nullptr;
  BlockUses* uses = nullptr;  ///< on other streams than its own; null: none
  bool small = false;         ///< cut from a segment for small requests
  bool free = false;
  bool captured =
      false;  ///< last handed to a capture, whose replays go on using it when it is free
  bool awaiting = false;  ///< freed, while other streams may still use it
};

inline constexpr std::size_t kBlockAlignment = 512;
inline constexpr std::size_t kSmallLimit = std::size_t{1} << 20;
inline constexpr std::size_t kSmallSegment = std::size_t{2} << 20;
inline constexpr std::size_t kMediumLimit = std::size_t{10} << 20;
inline constexpr std::size_t kMediumSegment = std::size_t{20} << 20;
inline constexpr std::size_t kLargeGranularity = std::size_t{2} << 20;

/// Bytes of the block for a request: a multiple of 512.
[[nodiscard]] constexpr std::size_t block_size(std::size_t requested) noexcept {
  return (requested + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

/// Bytes of a new segment for a request.
[[nodiscard]] constexpr std::size_t segment_size(std::size_t requested) noexcept {
  const std::size_t bytes = block_size(requested);
  if (bytes <= kSmallLimit) return kSmallSegment;
  if (bytes <= kMediumLimit) return kMediumSegment;
  return (bytes + kLargeGranularity - 1) / kLargeGranularity * kLargeGranularity;
}

/// Free blocks in the order of stream, size, address.
class FreeList {
 public:
  /// Room for `count` blocks, so that `insert` needs no memory.
  void reserve(std::size_t count) { entries_.reserve(count); }
  void insert(Block* block) noexcept;
  void erase(const Block* block) noexcept;
  /// Takes out the smallest block of `stream` with at least `bytes`, the lowest address among
  /// equals; null if there is none.
  [[nodiscard]] Block* take_best_fit(std::uint64_t stream, std::size_t bytes) noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  [[nodiscard]] std::size_t largest() const noexcept;
  void clear() noexcept { entries_.clear(); }

 private:
  struct Entry {
    std::uint64_t stream;
    std::size_t bytes;
    Block* block;
  };
  using Entries = std::vector<Entry>;
  [[nodiscard]] Entries::iterator position(std::uint64_t stream, std::size_t bytes,
                                           const std::byte* address) noexcept;

  Entries entries_;
};

/// The segments of one pool and the blocks that tile them. Every change is booked in the pool's own
/// statistics and in those of the device.
///
/// Memory that a capture has used is kept apart from the rest: its graph goes on writing it, so
/// only captures may have it again. Replays of one pool follow one another, so the free memory of
/// earlier captures belongs to no stream: any stream of the next capture may have it.
class BlockPool {
 public:
  BlockPool(std::uint64_t id, PoolStats& device_total) : id_(id), total_(device_total) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool() = default;

  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] const PoolStats& stats() const noexcept { return stats_; }
  void reset_peaks() noexcept;

  /// Hands out a block of `stream` for `requested` > 0 bytes, splitting a larger one; null if no
  /// free block is large enough. After that `add_segment` and one more `take` need no host memory.
  [[nodiscard]] Block* take(std::size_t requested, std::uint64_t stream, bool for_capture = false);
  /// Takes back a block and merges it with its free neighbours.
  void give_back(Block* block) noexcept;

  /// Adds a segment of `segment_size(requested)` bytes, wholly free, for blocks of `stream`. Call
  /// it only after `take` with these arguments returned null.
  void add_segment(void* address, std::size_t requested, std::uint64_t stream,
                   bool for_capture = false) noexcept;
  struct Segment {
    void* address;
    std::size_t bytes;
  };
  /// Brackets the captures that allocate here. After the last one, free memory of captures belongs
  /// to no stream.
  void capture_begins() noexcept { ++captures_; }
  void capture_ended() noexcept;

  /// Takes out one segment that is wholly free, if there is one.
  [[nodiscard]] std::optional<Segment> remove_free_segment() noexcept;
  [[nodiscard]] bool has_free_segment() const noexcept;

  /// First block of each segment.
  [[nodiscard]] std::span<Block* const> segments() const noexcept { return segments_; }
  [[nodiscard]] std::size_t free_blocks() const noexcept;
  [[nodiscard]] std::size_t largest_free_block() const noexcept;
  [[nodiscard]] std::size_t free_segment_bytes() const noexcept;

 private:
  struct Change {
    std::int64_t allocated = 0;
    std::int64_t requested = 0;
    std::int64_t blocks = 0;
    std::int64_t reserved = 0;
    std::int64_t segments = 0;
  };
  void book(const Change& change) noexcept;
  [[nodiscard]] FreeList& list(bool captured, bool small) noexcept {
    return lists_[captured ? 1 : 0][small ? 1 : 0];
  }
  [[nodiscard]] FreeList& list_of(const Block* block) noexcept {
    return list(block->captured, block->small);
  }
  [[nodiscard]] Block* find_for_capture(std::size_t bytes, std::uint64_t stream,
                                        bool small) noexcept;
  void grow();
  [[nodiscard]] Block* make_block() noexcept;
  void recycle(Block* block) noexcept;
  [[nodiscard]] Block* split(Block* block, std::size_t bytes) noexcept;
  void absorb_next(Block* block) noexcept;

  const std::uint64_t id_;
  PoolStats stats_;
  PoolStats& total_;
  std::array<std::array<FreeList, 2>, 2> lists_;  // by `captured`, by `small`
  int captures_ = 0;
  std::vector<Block*> segments_;

  // Block objects come from chunks and are used again, so a steady state makes none. The lists
  // above always have room for all of them.
  std::vector<std::unique_ptr<Block[]>> chunks_;
  Block* spare_ = nullptr;  // chained by `next`
  std::size_t spare_count_ = 0;
};

}  // namespace capstan

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
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

/// A piece of a segment, or a hole in it. Neighbours are the pieces before and after it in the same
/// segment.
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
  bool growable = false;  ///< of a growable segment
  bool hole = false;      ///< addresses of a growable segment without memory
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

/// The segments of one pool and the blocks that tile them. A plain segment is memory from end to
/// end. A growable one is a range of addresses that is first one hole; pages of memory are mapped
/// behind a free block, or behind none, as requests need them, and free pages become holes again.
/// Requests of one kind (stream or captures, small or large) share a growable segment, so the order
/// of their sizes does not decide how much memory they take. Every change is booked in the pool's
/// own statistics and in those of the device.
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
  /// free block is large enough. After that `add_reservation` and `grow`, or `add_segment`, and one
  /// more `take` need no host memory.
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

  /// The first `bytes` of `hole`, for memory to be mapped there.
  struct Growth {
    Block* hole = nullptr;
    std::size_t bytes = 0;
  };
  /// The fewest pages that, mapped, let `take` serve these arguments, the lowest address among
  /// equals; a null hole if no growable segment has room.
  [[nodiscard]] Growth find_growth(std::size_t requested, std::uint64_t stream, bool for_capture,
                                   std::size_t page) const noexcept;
  /// Adds a growable segment without memory for such requests; its hole.
  Block* add_reservation(Segment range, std::size_t requested, std::uint64_t stream,
                         bool for_capture) noexcept;
  /// Takes out a growable segment that is one hole.
  void remove_reservation(Block* hole) noexcept;
  /// Memory is mapped where `growth` says.
  void grow(const Growth& growth, std::uint64_t stream, bool for_capture) noexcept;
  /// Makes holes of the free pages of growable segments, calling `unmap` for each, and takes out
  /// what is one hole then, calling `release`. Stops early if there is no host memory.
  void release_free_pages(std::size_t page, const std::function<void(Segment)>& unmap,
                          const std::function<void(Segment)>& release) noexcept;
  /// Brackets the captures that allocate here. After the last one, free memory of captures belongs
  /// to no stream.
  void capture_begins() noexcept { ++captures_; }
  void capture_ended() noexcept;

  /// Takes out one plain segment that is wholly free, if there is one.
  [[nodiscard]] std::optional<Segment> remove_free_segment() noexcept;
  /// True if nothing is in use in one segment, plain or growable.
  [[nodiscard]] bool has_free_segment() const noexcept;

  /// First block of each segment.
  [[nodiscard]] std::span<Block* const> segments() const noexcept { return segments_; }
  [[nodiscard]] std::size_t free_blocks() const noexcept;
  [[nodiscard]] std::size_t largest_free_block() const noexcept;
  /// Of plain segments that are wholly free and of free pages of growable ones.
  [[nodiscard]] std::size_t releasable_bytes(std::size_t page) const noexcept;

 private:
  // What `take`, `add_reservation`, `grow` and `take` again can use up: one hole for the segment,
  // one for the rest of it, one remainder.
  static constexpr std::size_t kSparesNeeded = 3;

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
  /// No block of the segment is in use.
  [[nodiscard]] static bool is_wholly_free(const Block* first) noexcept;
  void add_chunk();
  void insert_merged(Block* block) noexcept;
  [[nodiscard]] std::vector<Block*>& holes_of(const Block* block) noexcept {
    return holes_[block->captured ? 1 : 0][block->small ? 1 : 0];
  }
  void forget_hole(Block* hole) noexcept;
  Block* make_hole(Block* block, const Segment& pages) noexcept;
  [[nodiscard]] Block* make_block() noexcept;
  void recycle(Block* block) noexcept;
  [[nodiscard]] Block* split(Block* block, std::size_t bytes) noexcept;
  void absorb_next(Block* block) noexcept;

  const std::uint64_t id_;
  PoolStats stats_;
  PoolStats& total_;
  std::array<std::array<FreeList, 2>, 2> lists_;             // by `captured`, by `small`
  std::array<std::array<std::vector<Block*>, 2>, 2> holes_;  // likewise
  int captures_ = 0;
  std::vector<Block*> segments_;

  // Block objects come from chunks and are used again, so a steady state makes none. The lists
  // above always have room for all of them.
  std::vector<std::unique_ptr<Block[]>> chunks_;
  Block* spare_ = nullptr;  // chained by `next`
  std::size_t spare_count_ = 0;
};

}  // namespace capstan

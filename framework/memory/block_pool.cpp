#include "framework/memory/block_pool.h"

#include <algorithm>
#include <cassert>

namespace capstan {
namespace {

constexpr std::size_t kBlocksPerChunk = 64;
// What `take`, `add_segment` and `take` again can use up: one segment and one remainder.
constexpr std::size_t kSparesNeeded = 2;

std::int64_t as_signed(std::size_t bytes) noexcept { return static_cast<std::int64_t>(bytes); }

bool is_wholly_free(const Block* first) noexcept { return first->free && first->next == nullptr; }

}  // namespace

FreeList::Entries::iterator FreeList::position(std::uint64_t stream, std::size_t bytes,
                                               const std::byte* address) noexcept {
  return std::partition_point(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    if (entry.stream != stream) return entry.stream < stream;
    if (entry.bytes != bytes) return entry.bytes < bytes;
    return entry.block->address < address;
  });
}

void FreeList::insert(Block* block) noexcept {
  assert(entries_.size() < entries_.capacity());
  entries_.insert(position(block->stream, block->bytes, block->address),
                  {block->stream, block->bytes, block});
}

void FreeList::erase(const Block* block) noexcept {
  const auto entry = position(block->stream, block->bytes, block->address);
  assert(entry != entries_.end() && entry->block == block);
  entries_.erase(entry);
}

Block* FreeList::take_best_fit(std::uint64_t stream, std::size_t bytes) noexcept {
  const auto entry = position(stream, bytes, nullptr);
  if (entry == entries_.end() || entry->stream != stream) return nullptr;
  Block* block = entry->block;
  entries_.erase(entry);
  return block;
}

void BlockPool::reset_peaks() noexcept {
  stats_.peak_allocated_bytes = stats_.allocated_bytes;
  stats_.peak_reserved_bytes = stats_.reserved_bytes;
}

void BlockPool::book(const Change& change) noexcept {
  for (PoolStats* stats : {&stats_, &total_}) {
    stats->allocated_bytes += change.allocated;
    stats->requested_bytes += change.requested;
    stats->blocks += change.blocks;
    stats->reserved_bytes += change.reserved;
    stats->segments += change.segments;
    stats->peak_allocated_bytes = std::max(stats->peak_allocated_bytes, stats->allocated_bytes);
    stats->peak_reserved_bytes = std::max(stats->peak_reserved_bytes, stats->reserved_bytes);
  }
}

Block* BlockPool::take(std::size_t requested, std::uint64_t stream) {
  if (spare_count_ < kSparesNeeded) [[unlikely]]
    grow();
  const std::size_t bytes = block_size(requested);
  const bool small = bytes <= kSmallLimit;
  FreeList& list = small ? small_ : large_;
  Block* block = list.take_best_fit(stream, bytes);
  if (block == nullptr) return nullptr;

  const std::size_t rest = block->bytes - bytes;
  if (small ? rest >= kBlockAlignment : rest > kSmallLimit) list.insert(split(block, bytes));
  block->free = false;
  block->requested = requested;
  book({.allocated = as_signed(block->bytes), .requested = as_signed(requested), .blocks = 1});
  return block;
}

void BlockPool::give_back(Block* block) noexcept {
  assert(block->pool == this && !block->free);
  book({.allocated = -as_signed(block->bytes),
        .requested = -as_signed(block->requested),
        .blocks = -1});
  FreeList& list = list_of(block);
  if (Block* next = block->next; next != nullptr && next->free) {
    list.erase(next);
    absorb_next(block);
  }
  if (Block* previous = block->previous; previous != nullptr && previous->free) {
    list.erase(previous);
    absorb_next(previous);
    block = previous;
  }
  block->free = true;
  block->requested = 0;
  list.insert(block);
}

void BlockPool::add_segment(void* address, std::size_t requested, std::uint64_t stream) noexcept {
  Block* block = make_block();
  block->address = static_cast<std::byte*>(address);
  block->bytes = segment_size(requested);
  block->stream = stream;
  block->small = block_size(requested) <= kSmallLimit;
  block->free = true;
  segments_.push_back(block);
  list_of(block).insert(block);
  book({.reserved = as_signed(block->bytes), .segments = 1});
}

std::optional<BlockPool::Segment> BlockPool::remove_free_segment() noexcept {
  const auto found = std::find_if(segments_.begin(), segments_.end(), is_wholly_free);
  if (found == segments_.end()) return std::nullopt;
  Block* block = *found;
  segments_.erase(found);
  list_of(block).erase(block);
  const Segment segment{block->address, block->bytes};
  recycle(block);
  book({.reserved = -as_signed(segment.bytes), .segments = -1});
  return segment;
}

bool BlockPool::has_free_segment() const noexcept {
  return std::any_of(segments_.begin(), segments_.end(), is_wholly_free);
}

void BlockPool::grow() {
  const std::size_t all = (chunks_.size() + 1) * kBlocksPerChunk;
  if (segments_.capacity() < all) {
    const std::size_t room = 2 * all;  // doubling keeps the copying in proportion to the final size
    small_.reserve(room);
    large_.reserve(room);
    segments_.reserve(room);
  }
  chunks_.push_back(std::make_unique<Block[]>(kBlocksPerChunk));
  for (std::size_t i = 0; i < kBlocksPerChunk; ++i) recycle(&chunks_.back()[i]);
}

Block* BlockPool::make_block() noexcept {
  assert(spare_count_ > 0);
  Block* block = spare_;
  spare_ = block->next;
  --spare_count_;
  *block = Block{};
  block->pool = this;
  return block;
}

void BlockPool::recycle(Block* block) noexcept {
  block->next = spare_;
  spare_ = block;
  ++spare_count_;
}

Block* BlockPool::split(Block* block, std::size_t bytes) noexcept {
  Block* rest = make_block();
  rest->address = block->address + bytes;
  rest->bytes = block->bytes - bytes;
  rest->stream = block->stream;
  rest->small = block->small;
  rest->free = true;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest;
  block->next = rest;
  block->bytes = bytes;
  return rest;
}

void BlockPool::absorb_next(Block* block) noexcept {
  Block* gone = block->next;
  block->bytes += gone->bytes;
  block->next = gone->next;
  if (block->next != nullptr) block->next->previous = block;
  recycle(gone);
}

}  // namespace capstan

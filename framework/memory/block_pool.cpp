#include "framework/memory/block_pool.h"

#include <algorithm>
#include <cassert>

namespace capstan {
namespace {

constexpr std::size_t kBlocksPerChunk = 64;
std::int64_t as_signed(std::size_t bytes) noexcept { return static_cast<std::int64_t>(bytes); }

bool can_merge(const Block* a, const Block* b) noexcept {
  return a->free && b->free && a->captured == b->captured &&
         (a->stream == b->stream || a->stream == kAnyStream || b->stream == kAnyStream);
}

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

std::size_t FreeList::largest() const noexcept {
  std::size_t bytes = 0;
  for (const Entry& entry : entries_) bytes = std::max(bytes, entry.bytes);
  return bytes;
}

bool BlockPool::is_wholly_free(const Block* first) noexcept {
  const Block* block = first;
  while (block != nullptr && (block->free || block->hole)) block = block->next;
  return block == nullptr;
}

void BlockPool::reset_peaks() noexcept {
  stats_.peak_allocated_bytes = stats_.allocated_bytes;
  stats_.peak_reserved_bytes = stats_.reserved_bytes;
}

// Out of line: inlined into its callers it makes a cached request 10 ns slower (GCC 12).
[[gnu::noinline]] void BlockPool::book(const Change& change) noexcept {
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

Block* BlockPool::find_for_capture(std::size_t bytes, std::uint64_t stream, bool small) noexcept {
  FreeList& captured = list(true, small);
  if (Block* block = captured.take_best_fit(stream, bytes)) return block;
  if (Block* block = captured.take_best_fit(kAnyStream, bytes)) return block;
  return list(false, small).take_best_fit(stream, bytes);
}

Block* BlockPool::take(std::size_t requested, std::uint64_t stream, bool for_capture) {
  if (spare_count_ < kSparesNeeded) [[unlikely]]
    add_chunk();
  const std::size_t bytes = block_size(requested);
  const bool small = bytes <= kSmallLimit;
  Block* block = for_capture ? find_for_capture(bytes, stream, small)
                             : list(false, small).take_best_fit(stream, bytes);
  if (block == nullptr) return nullptr;

  const std::size_t rest = block->bytes - bytes;
  if (small || block->growable ? rest >= kBlockAlignment : rest > kSmallLimit) {
    list_of(block).insert(split(block, bytes));
  }
  block->free = false;
  block->stream = stream;
  block->captured = for_capture;
  block->requested = requested;
  book({.allocated = as_signed(block->bytes), .requested = as_signed(requested), .blocks = 1});
  return block;
}

void BlockPool::give_back(Block* block) noexcept {
  assert(block->pool == this && !block->free);
  book({.allocated = -as_signed(block->bytes),
        .requested = -as_signed(block->requested),
        .blocks = -1});
  block->free = true;
  block->requested = 0;
  if (block->captured && captures_ == 0) block->stream = kAnyStream;
  insert_merged(block);
}

void BlockPool::insert_merged(Block* block) noexcept {
  FreeList& free_list = list_of(block);
  if (Block* next = block->next; next != nullptr && can_merge(block, next)) {
    free_list.erase(next);
    absorb_next(block);
  }
  if (Block* previous = block->previous; previous != nullptr && can_merge(previous, block)) {
    free_list.erase(previous);
    absorb_next(previous);
    block = previous;
  }
  free_list.insert(block);
}

void BlockPool::capture_ended() noexcept {
  if (--captures_ != 0) return;
  list(true, false).clear();
  list(true, true).clear();
  for (Block* block : segments_) {
    for (; block != nullptr; block = block->next) {
      if (!block->free || !block->captured) continue;
      block->stream = kAnyStream;
      while (block->next != nullptr && can_merge(block, block->next)) {
        absorb_next(block);
        block->stream = kAnyStream;
      }
      list_of(block).insert(block);
    }
  }
}

void BlockPool::add_segment(void* address, std::size_t requested, std::uint64_t stream,
                            bool for_capture) noexcept {
  Block* block = make_block();
  block->address = static_cast<std::byte*>(address);
  block->bytes = segment_size(requested);
  block->stream = stream;
  block->small = block_size(requested) <= kSmallLimit;
  block->free = true;
  block->captured = for_capture;
  segments_.push_back(block);
  list_of(block).insert(block);
  book({.reserved = as_signed(block->bytes), .segments = 1});
}

std::optional<BlockPool::Segment> BlockPool::remove_free_segment() noexcept {
  const auto found = std::find_if(segments_.begin(), segments_.end(), [](const Block* first) {
    return !first->growable && is_wholly_free(first);
  });
  if (found == segments_.end()) return std::nullopt;
  Block* block = *found;
  segments_.erase(found);
  Segment segment{block->address, 0};
  while (block != nullptr) {
    Block* next = block->next;
    list_of(block).erase(block);
    segment.bytes += block->bytes;
    recycle(block);
    block = next;
  }
  book({.reserved = -as_signed(segment.bytes), .segments = -1});
  return segment;
}

bool BlockPool::has_free_segment() const noexcept {
  return std::any_of(segments_.begin(), segments_.end(), is_wholly_free);
}

std::size_t BlockPool::free_blocks() const noexcept {
  std::size_t count = 0;
  for (const auto& kind : lists_) count += kind[0].size() + kind[1].size();
  return count;
}

std::size_t BlockPool::largest_free_block() const noexcept {
  std::size_t bytes = 0;
  for (const auto& kind : lists_) bytes = std::max({bytes, kind[0].largest(), kind[1].largest()});
  return bytes;
}

void BlockPool::add_chunk() {
  const std::size_t all = (chunks_.size() + 1) * kBlocksPerChunk;
  if (segments_.capacity() < all) {
    const std::size_t room = 2 * all;  // doubling keeps the copying in proportion to the final size
    for (auto& kind : lists_) {
      for (FreeList& free_list : kind) free_list.reserve(room);
    }
    for (auto& kind : holes_) {
      for (std::vector<Block*>& holes : kind) holes.reserve(room);
    }
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
  rest->captured = block->captured;
  rest->growable = block->growable;
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
  if (block->stream == kAnyStream) block->stream = gone->stream;
  block->next = gone->next;
  if (block->next != nullptr) block->next->previous = block;
  recycle(gone);
}

}  // namespace capstan

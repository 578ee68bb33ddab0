#include <algorithm>
#include <cassert>
#include <limits>
#include <new>

#include "framework/memory/block_pool.h"

// Growable segments: where memory is added, and which pages can go back.
namespace capstan {
namespace {

constexpr std::size_t kHoleSpares = 2;  // a free block with pages in its middle becomes three

bool may_serve(const Block* block, std::uint64_t stream, bool for_capture) noexcept {
  if (block == nullptr || !block->free) return false;
  if (!block->captured) return block->stream == stream;
  return for_capture && (block->stream == stream || block->stream == kAnyStream);
}

std::uintptr_t number_of(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address);
}

// The pages that lie wholly within a block; empty if there are none.
BlockPool::Segment pages_within(const Block* block, std::size_t page) noexcept {
  const std::uintptr_t begin = (number_of(block->address) + page - 1) / page * page;
  const std::uintptr_t end = (number_of(block->address) + block->bytes) / page * page;
  return {block->address + (begin - number_of(block->address)), begin < end ? end - begin : 0};
}

}  // namespace

BlockPool::Growth BlockPool::find_growth(std::size_t requested, std::uint64_t stream,
                                         bool for_capture, std::size_t page) const noexcept {
  const std::size_t bytes = block_size(requested);
  const std::size_t small = bytes <= kSmallLimit ? 1 : 0;
  Growth best{nullptr, std::numeric_limits<std::size_t>::max()};
  const auto consider = [&](bool captured, std::uint64_t owner) {
    for (Block* hole : holes_[captured ? 1 : 0][small]) {
      if (hole->stream != owner) continue;
      const Block* lead = hole->previous;
      const std::size_t there = may_serve(lead, stream, for_capture) ? lead->bytes : 0;
      assert(there < bytes);  // or `take` would have found it
      const std::size_t missing = (bytes - there + page - 1) / page * page;
      if (missing > hole->bytes || missing > best.bytes) continue;
      if (missing == best.bytes && hole->address > best.hole->address) continue;
      best = {hole, missing};
    }
  };
  if (for_capture) consider(true, kAnyStream);
  consider(false, stream);
  return best;
}

Block* BlockPool::add_reservation(Segment range, std::size_t requested, std::uint64_t stream,
                                  bool for_capture) noexcept {
  Block* hole = make_block();
  hole->address = static_cast<std::byte*>(range.address);
  hole->bytes = range.bytes;
  hole->stream = for_capture ? kAnyStream : stream;
  hole->small = block_size(requested) <= kSmallLimit;
  hole->captured = for_capture;
  hole->growable = true;
  hole->hole = true;
  segments_.push_back(hole);
  holes_of(hole).push_back(hole);
  book({.segments = 1});
  return hole;
}

void BlockPool::remove_reservation(Block* hole) noexcept {
  assert(hole->hole && hole->previous == nullptr && hole->next == nullptr);
  forget_hole(hole);
  std::erase(segments_, hole);
  recycle(hole);
  book({.segments = -1});
}

void BlockPool::forget_hole(Block* hole) noexcept {
  std::vector<Block*>& holes = holes_of(hole);
  const auto found = std::find(holes.begin(), holes.end(), hole);
  assert(found != holes.end());
  *found = holes.back();
  holes.pop_back();
}

void BlockPool::grow(const Growth& growth, std::uint64_t stream, bool for_capture) noexcept {
  // The hole's own object becomes the block, so that it may stay the first of its segment.
  Block* block = growth.hole;
  forget_hole(block);
  if (growth.bytes < block->bytes) {
    Block* rest = split(block, growth.bytes);
    rest->free = false;
    rest->hole = true;
    holes_of(rest).push_back(rest);
  }
  const Block* lead = block->previous;
  block->captured = may_serve(lead, stream, for_capture) ? lead->captured : for_capture;
  block->stream = stream;
  block->hole = false;
  block->free = true;
  book({.reserved = static_cast<std::int64_t>(block->bytes)});
  insert_merged(block);
}

Block* BlockPool::make_hole(Block* block, const Segment& pages) noexcept {
  list_of(block).erase(block);
  const std::byte* begin = static_cast<std::byte*>(pages.address);
  if (const auto before = static_cast<std::size_t>(begin - block->address); before != 0) {
    Block* rest = split(block, before);
    list_of(block).insert(block);
    block = rest;
  }
  if (block->bytes != pages.bytes) list_of(block).insert(split(block, pages.bytes));
  block->free = false;
  block->hole = true;
  if (block->captured) block->stream = kAnyStream;
  book({.reserved = -static_cast<std::int64_t>(pages.bytes)});
  if (Block* next = block->next; next != nullptr && next->hole) {
    forget_hole(next);
    absorb_next(block);
  }
  if (Block* previous = block->previous; previous != nullptr && previous->hole) {
    absorb_next(previous);
    return previous;
  }
  holes_of(block).push_back(block);
  return block;
}

void BlockPool::release_free_pages(std::size_t page, const std::function<void(Segment)>& unmap,
                                   const std::function<void(Segment)>& release) noexcept {
  for (std::size_t i = segments_.size(); i-- > 0;) {
    if (!segments_[i]->growable) continue;
    for (Block* block = segments_[i]; block != nullptr; block = block->next) {
      const Segment pages = block->free ? pages_within(block, page) : Segment{};
      if (pages.bytes == 0) continue;
      try {
        while (spare_count_ < kSparesNeeded + kHoleSpares) add_chunk();
      } catch (const std::bad_alloc&) {
        return;
      }
      block = make_hole(block, pages);
      unmap(pages);
    }
    Block* first = segments_[i];
    if (!first->hole || first->next != nullptr) continue;
    const Segment range{first->address, first->bytes};
    remove_reservation(first);
    release(range);
  }
}

std::size_t BlockPool::releasable_bytes(std::size_t page) const noexcept {
  std::size_t bytes = 0;
  for (const Block* first : segments_) {
    const bool whole = !first->growable && is_wholly_free(first);
    for (const Block* block = first; block != nullptr; block = block->next) {
      if (whole) bytes += block->bytes;
      if (first->growable && block->free) bytes += pages_within(block, page).bytes;
    }
  }
  return bytes;
}

}  // namespace capstan

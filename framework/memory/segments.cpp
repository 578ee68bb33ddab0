#include <algorithm>
#include <utility>

#include "framework/core/counters.h"
#include "framework/memory/allocator_impl.h"

// How the allocator gets memory from the device and gives it back.
namespace capstan {
namespace {

// The part of the device's memory whose addresses a growable segment for small requests reserves;
// one for large requests reserves as many as the device has bytes. When one is full another
// follows.
constexpr std::size_t kSmallShare = 16;

std::size_t whole_pages(std::size_t bytes, std::size_t page) noexcept {
  return (bytes + page - 1) / page * page;
}

}  // namespace

bool CachingAllocator::Impl::within_limit(std::size_t more) const noexcept {
  const auto reserved = static_cast<std::size_t>(total.reserved_bytes);
  return !limit || (reserved <= *limit && more <= *limit - reserved);
}

bool CachingAllocator::Impl::add_memory(Pool& pool, std::size_t bytes, std::uint64_t stream,
                                        bool for_capture) {
  if (page == 0 || !growable) return add_segment(pool, bytes, stream, for_capture);
  BlockPool::Growth growth = pool.find_growth(bytes, stream, for_capture, page);
  if (growth.hole != nullptr) return grow_segment(pool, growth, stream, for_capture);
  growth.bytes = whole_pages(block_size(bytes), page);
  if (!within_limit(growth.bytes)) return false;
  growth.hole = reserve(pool, bytes, stream, for_capture);
  if (growth.hole == nullptr) return add_segment(pool, bytes, stream, for_capture);
  const BlockPool::Segment range{growth.hole->address, growth.hole->bytes};
  bool grown = false;
  try {
    grown = grow_segment(pool, growth, stream, for_capture);
  } catch (...) {
    pool.remove_reservation(growth.hole);
    runtime.release_addresses(range.address, range.bytes);
    throw;
  }
  if (!grown) {
    pool.remove_reservation(growth.hole);
    runtime.release_addresses(range.address, range.bytes);
  }
  return grown;
}

bool CachingAllocator::Impl::add_segment(Pool& pool, std::size_t bytes, std::uint64_t stream,
                                         bool for_capture) {
  const std::size_t size = segment_size(bytes);
  if (!within_limit(size)) return false;
  void* segment = runtime.allocate(size);
  if (segment == nullptr) return false;
  detail::count(counters().device_allocations);
  history.segment("segment_alloc", segment, size, pool.id());
  pool.add_segment(segment, bytes, stream, for_capture);
  return true;
}

bool CachingAllocator::Impl::grow_segment(Pool& pool, BlockPool::Growth growth,
                                          std::uint64_t stream, bool for_capture) {
  if (!within_limit(growth.bytes)) return false;
  void* const address = growth.hole->address;
  if (!runtime.map_pages(address, growth.bytes)) return false;
  detail::count(counters().device_allocations);
  history.segment("segment_map", address, growth.bytes, pool.id());
  pool.grow(growth, stream, for_capture);
  return true;
}

Block* CachingAllocator::Impl::reserve(Pool& pool, std::size_t bytes, std::uint64_t stream,
                                       bool for_capture) {
  const std::size_t size = block_size(bytes);
  if (device_bytes == 0) device_bytes = runtime.memory().total_bytes;
  const std::size_t all = device_bytes;
  const std::size_t room =
      whole_pages(std::max(size, size <= kSmallLimit ? all / kSmallShare : all), page);
  void* const address = runtime.reserve_addresses(room);
  if (address == nullptr) return nullptr;
  return pool.add_reservation({address, room}, bytes, stream, for_capture);
}

void CachingAllocator::Impl::give_back_free_memory(Pool& pool) noexcept {
  while (const auto segment = pool.remove_free_segment()) {
    history.segment("segment_free", segment->address, segment->bytes, pool.id());
    runtime.deallocate(segment->address);
  }
  if (page == 0) return;
  pool.release_free_pages(
      page,
      [&](BlockPool::Segment pages) {
        history.segment("segment_unmap", pages.address, pages.bytes, pool.id());
        runtime.unmap_pages(pages.address, pages.bytes);
      },
      [&](BlockPool::Segment range) { runtime.release_addresses(range.address, range.bytes); });
}

void CachingAllocator::Impl::release_segment(const Block* first) noexcept {
  std::byte* const address = first->address;
  if (!first->growable) return runtime.deallocate(address);
  std::size_t bytes = 0;
  std::size_t run = 0;  // mapped, up to here
  for (const Block* block = first; block != nullptr; block = block->next) {
    run += block->hole ? 0 : block->bytes;
    bytes += block->bytes;
    if (run == 0 || (!block->hole && block->next != nullptr)) continue;
    std::byte* const end = address + bytes - (block->hole ? block->bytes : 0);
    runtime.unmap_pages(end - run, run);
    run = 0;
  }
  runtime.release_addresses(address, bytes);
}

}  // namespace capstan

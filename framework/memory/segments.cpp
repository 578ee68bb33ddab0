#include <algorithm>
#include <utility>

#include "framework/core/counters.h"
#include "framework/memory/allocator_impl.h"

// How the allocator gets memory from the device and gives it back.
namespace capstan {
namespace {

// A growable segment reserves the addresses of one in so many parts of the device's memory; when it
// is full another follows. Of private pools there may be many.
std::size_t address_share(bool small, bool is_private) noexcept {
  return (small ? 16u : 1u) * (is_private ? 8u : 1u);
}

// For all growable segments of a device. A process has four times as many, for everything.
constexpr std::size_t kAddressBudget = std::size_t{1} << 45;

}  // namespace

bool CachingAllocator::Impl::within_limit(std::size_t more) const noexcept {
  const auto reserved = static_cast<std::size_t>(total.reserved_bytes);
  return !limit || (reserved <= *limit && more <= *limit - reserved);
}

bool CachingAllocator::Impl::add_memory(Pool& pool, std::size_t bytes, std::uint64_t stream,
                                        bool for_capture) {
  if (granularity == 0 || !growable) return add_segment(pool, bytes, stream, for_capture);
  BlockPool::Growth growth = pool.find_growth(bytes, stream, for_capture, granularity);
  const bool begins = growth.hole == nullptr;
  if (begins) growth = begin_segment(pool, bytes, stream, for_capture);
  if (growth.hole == nullptr) return add_segment(pool, bytes, stream, for_capture);
  const BlockPool::Segment range{growth.hole->address, growth.hole->bytes};
  const auto undo = [&]() noexcept {
    if (!begins) return;
    pool.remove_reservation(growth.hole);
    release_addresses(range);
  };
  bool grown = false;
  try {
    grown = grow_segment(pool, growth, stream, for_capture);
  } catch (...) {
    undo();
    throw;
  }
  if (grown) return true;
  undo();
  // Where whole pages are too much, a segment of its own may still do.
  return segment_size(bytes) < growth.bytes && add_segment(pool, bytes, stream, for_capture);
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
  const std::size_t page = page_size(growth.hole->small, granularity);
  if (!runtime.map_pages(address, growth.bytes, page)) return false;
  detail::count(counters().device_allocations);
  history.segment("segment_map", address, growth.bytes, pool.id());
  pool.grow(growth, stream, for_capture);
  return true;
}

BlockPool::Growth CachingAllocator::Impl::begin_segment(Pool& pool, std::size_t bytes,
                                                        std::uint64_t stream, bool for_capture) {
  if (device_bytes == 0) device_bytes = runtime.memory().total_bytes;
  const bool small = is_small(bytes);
  const std::size_t page = page_size(small, granularity);
  const std::size_t first = round_up(block_size(bytes), page);
  const std::size_t room =
      std::max(first, round_up(device_bytes / address_share(small, pool.id() != 0), page));
  if (room > kAddressBudget - address_bytes) return {};
  void* const address = runtime.reserve_addresses(room);
  if (address == nullptr) return {};
  address_bytes += room;
  return {pool.add_reservation({address, room}, bytes, stream, for_capture), first};
}

void CachingAllocator::Impl::release_addresses(const BlockPool::Segment& range) noexcept {
  runtime.release_addresses(range.address, range.bytes);
  address_bytes -= range.bytes;
}

void CachingAllocator::Impl::give_back_free_memory(Pool& pool) noexcept {
  while (const auto segment = pool.remove_free_segment()) {
    history.segment("segment_free", segment->address, segment->bytes, pool.id());
    runtime.deallocate(segment->address);
  }
  if (granularity == 0) return;
  pool.release_free_pages(
      granularity,
      [&](BlockPool::Segment pages) {
        history.segment("segment_unmap", pages.address, pages.bytes, pool.id());
        runtime.unmap_pages(pages.address, pages.bytes);
      },
      [&](BlockPool::Segment range) { release_addresses(range); });
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
  release_addresses({address, bytes});
}

}  // namespace capstan

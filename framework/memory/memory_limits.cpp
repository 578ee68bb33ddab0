#include <algorithm>
#include <array>
#include <iomanip>
#include <sstream>
#include <utility>

#include "framework/core/error.h"
#include "framework/memory/allocator_impl.h"

namespace capstan {
namespace {

std::string readable(std::size_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  std::ostringstream out;
  out << std::fixed << std::setprecision(unit == 0 ? 0 : 1) << value << ' ' << kUnits[unit];
  return std::move(out).str();
}

std::string readable(std::int64_t bytes) { return readable(static_cast<std::size_t>(bytes)); }

std::int64_t cached(const PoolStats& stats) { return stats.reserved_bytes - stats.allocated_bytes; }

}  // namespace

AllocatorStats CachingAllocator::Impl::report() const {
  AllocatorStats stats{
      .total = total, .awaiting_bytes = static_cast<std::int64_t>(deferred.bytes()), .pools = {}};
  for (const auto& pool : pools) {
    stats.pools.push_back({pool->id(), pool->name, pool->use_count, pool->stats()});
  }
  return stats;
}

Shortage CachingAllocator::Impl::shortage(std::size_t bytes) const {
  Shortage shortage{.device = runtime.device(),
                    .requested = bytes,
                    .memory = runtime.memory(),
                    .limit = limit,
                    .stats = report(),
                    .message = {}};
  std::ostringstream out;
  out << "allocator: out of memory on " << shortage.device << ", asked for " << readable(bytes)
      << " with " << readable(shortage.memory.free_bytes) << " of "
      << readable(shortage.memory.total_bytes) << " free";
  if (limit)
    out << " and a limit of " << readable(*limit) << ", " << readable(total.reserved_bytes)
        << " of it held";
  out << "; pools:";
  const char* separator = " ";
  std::int64_t released = 0;
  for (const auto& pool : pools) {
    const PoolStats& stats = pool->stats();
    out << separator << '"' << pool->name << "\" " << readable(stats.allocated_bytes) << " in use, "
        << readable(cached(stats)) << " cached";
    if (cached(stats) != 0) {
      out << " (largest free block " << readable(pool->largest_free_block()) << ')';
    }
    if (pool->use_count == 0) released += cached(stats);
    separator = "; ";
  }
  if (!deferred.empty()) {
    out << "; freed, but still used by other streams: " << readable(deferred.bytes());
  }
  if (released != 0) out << "; released pools still hold " << readable(released);
  if (detail::active_captures() != 0) {
    out << "; a capture is in progress, so cached memory could not be given back: call "
           "empty_cache before capturing";
    const std::size_t possible = pools.front()->releasable_bytes(page);
    if (possible != 0) out << ", which could free " << readable(possible);
  }
  out << "; use smaller batches or drop graphs and tensors that are no longer needed";
  shortage.message = std::move(out).str();
  return shortage;
}

std::string CacheEmptied::reason() const {
  if (capturing) return "nothing was given back, since a capture is in progress";
  std::string text;
  if (kept_beside != 0) text += readable(kept_beside) + " in segments with live blocks";
  if (kept_in_pools != 0) {
    text += (text.empty() ? "" : "; ") + readable(kept_in_pools) + " in private pools";
  }
  return text;
}

CacheEmptied CachingAllocator::empty_cache() {
  const std::lock_guard lock(impl_->mutex);
  CacheEmptied result;
  result.capturing = detail::active_captures() != 0;
  if (!result.capturing) {
    impl_->runtime.synchronize_device();
    impl_->deferred.poll();
    const std::int64_t before = impl_->total.reserved_bytes;
    if (impl_->released_wait) impl_->collect_released();
    impl_->give_back_free_memory(*impl_->pools.front());
    result.bytes = static_cast<std::size_t>(before - impl_->total.reserved_bytes);
    result.pinned = impl_->pinned.empty_cache();
  }
  const std::int64_t common = cached(impl_->pools.front()->stats());
  result.kept_beside = static_cast<std::size_t>(common);
  result.kept_in_pools = static_cast<std::size_t>(cached(impl_->total) - common);
  return result;
}

void CachingAllocator::set_memory_limit(std::optional<std::size_t> bytes) {
  CAPSTAN_CHECK(!bytes || *bytes > 0, ValueError,
                "set_memory_limit: a limit must be at least 1 byte, got 0; pass nullopt for none");
  const std::lock_guard lock(impl_->mutex);
  impl_->limit = bytes;
}

void CachingAllocator::set_memory_fraction(double fraction) {
  CAPSTAN_CHECK(fraction > 0.0 && fraction <= 1.0, ValueError,
                "set_memory_fraction: the fraction must be above 0 and at most 1, got ", fraction);
  if (fraction == 1.0) return set_memory_limit(std::nullopt);
  const auto all = static_cast<double>(impl_->runtime.memory().total_bytes);
  set_memory_limit(std::max(std::size_t{1}, static_cast<std::size_t>(fraction * all)));
}

std::optional<std::size_t> CachingAllocator::memory_limit() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->limit;
}

void CachingAllocator::set_growable_segments(bool enabled) {
  const std::lock_guard lock(impl_->mutex);
  impl_->growable = enabled;
}

bool CachingAllocator::has_growable_segments() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->growable && impl_->page != 0;
}

int CachingAllocator::add_shortage_observer(std::function<void(const Shortage&)> observer) {
  const std::lock_guard lock(impl_->mutex);
  impl_->observers.emplace_back(impl_->next_observer, std::move(observer));
  return impl_->next_observer++;
}

void CachingAllocator::remove_shortage_observer(int id) {
  const std::lock_guard lock(impl_->mutex);
  std::erase_if(impl_->observers, [id](const auto& entry) { return entry.first == id; });
}

}  // namespace capstan

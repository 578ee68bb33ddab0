#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <mutex>
#include <utility>

#include "framework/core/counters.h"
#include "framework/core/error.h"
#include "framework/memory/allocator_impl.h"
#include "framework/runtime/capture_session.h"

namespace capstan {
namespace {

// Past this, rounding up to a segment could overflow; no device has as much.
constexpr std::size_t kLargestRequest = std::numeric_limits<std::size_t>::max() / 4;

std::uint64_t next_pool_id() noexcept {
  static constinit std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

CachingAllocator::Impl::Impl(DeviceRuntime& device_runtime)
    : runtime(device_runtime),
      poisons(device_runtime.poisons()),
      deferred(device_runtime, [this](Block* block) { give_back(block); }),
      pinned(device_runtime),
      page(device_runtime.page_bytes()),
      growable(device_runtime.device().is_cpu()) {
  pools.push_back(std::make_unique<Pool>(0, "common", total));
  detail::add_capture_observer(this);
}

CachingAllocator::Impl::~Impl() {
  detail::remove_capture_observer(this);
  for (const auto& pool : pools) {
    for (const Block* first : pool->segments()) release_segment(first);
  }
}

CachingAllocator::Impl::Pool* CachingAllocator::Impl::find(std::uint64_t id) const noexcept {
  for (const auto& pool : pools) {
    if (pool->id() == id) return pool.get();
  }
  return nullptr;
}

CachingAllocator::Impl::Pool& CachingAllocator::Impl::route(const CaptureSession* session) {
  if (session == nullptr) {
    const std::uint64_t guarded = PoolGuard::current(runtime.device());
    Pool* pool = guarded != 0 ? find(guarded) : nullptr;
    return pool != nullptr ? *pool : *pools.front();
  }
  Pool* pool = find(session->pool());
  CAPSTAN_CHECK(pool != nullptr && pool->use_count > 0, StateError,
                "allocator: the capture allocates from pool ", session->pool(),
                ", which does not exist on ", runtime.device(),
                "; keep its GraphPool alive and on the device that captures");
  if (std::find(pool->captures.rbegin(), pool->captures.rend(), session->id()) ==
      pool->captures.rend()) {
    pool->captures.push_back(session->id());
    pool->capture_begins();
  }
  return *pool;
}

Block* CachingAllocator::Impl::take(Pool& pool, std::size_t bytes, std::uint64_t stream,
                                    bool for_capture) {
  if (Block* block = pool.take(bytes, stream, for_capture)) [[likely]]
    return block;
  bool more = add_memory(pool, bytes, stream, for_capture);
  // Waiting and freeing would break a capture, whichever thread it belongs to.
  if (!more && detail::active_captures() == 0) {
    runtime.synchronize_device();
    deferred.poll();
    if (Block* block = pool.take(bytes, stream, for_capture)) return block;
    give_back_free_memory(*pools.front());
    more = add_memory(pool, bytes, stream, for_capture);
  }
  return more ? pool.take(bytes, stream, for_capture) : nullptr;
}

void CachingAllocator::Impl::give_back(Block* block) noexcept {
  auto& pool = static_cast<Pool&>(*block->pool);
  history.free_completed(block);
  // Private pools hand memory on to other streams, in orders that this one knows nothing of.
  if (poisons && pool.id() == 0) [[unlikely]] {
    runtime.poison(block->address, block->bytes, block->stream);
  }
  pool.give_back(block);
  if (pool.use_count == 0) [[unlikely]]
    released_wait = true;
}

void CachingAllocator::Impl::capture_ended(const CaptureSession& session) noexcept {
  const std::lock_guard lock(mutex);
  deferred.capture_ended(session);
  for (const auto& pool : pools) {
    if (std::erase(pool->captures, session.id()) != 0) pool->capture_ended();
  }
  if (released_wait) collect_released();
}

bool CachingAllocator::Impl::wait_for_device() noexcept {
  try {
    runtime.synchronize_device();
    return true;
  } catch (...) {
    return false;  // whatever broke the device shows at the next call that may throw
  }
}

void CachingAllocator::Impl::collect_released() noexcept {
  released_wait = false;
  const auto due = [this](const auto& pool) { return is_due(*pool); };
  if (std::none_of(pools.begin(), pools.end(), due)) return;  // so that no free waits in vain
  released_wait = detail::active_captures() != 0 || !wait_for_device();
  if (released_wait) return;
  for (const auto& pool : pools) {
    if (pool->use_count != 0) continue;
    give_back_free_memory(*pool);
    pool->release_due = false;
  }
  std::erase_if(pools,
                [](const auto& pool) { return pool->use_count == 0 && pool->segments().empty(); });
}

// Pages that a later free completes wait for the rest of their segment, or every such free would
// wait for the device.
bool CachingAllocator::Impl::is_due(const Pool& pool) const noexcept {
  return pool.use_count == 0 && (pool.segments().empty() || pool.has_free_segment() ||
                                 (pool.release_due && pool.releasable_bytes(page) != 0));
}

CachingAllocator::CachingAllocator(DeviceRuntime& runtime)
    : impl_(std::make_unique<Impl>(runtime)) {}

CachingAllocator::~CachingAllocator() = default;

Block* CachingAllocator::allocate(std::size_t bytes, StreamState& stream) {
  if (bytes == 0) return nullptr;
  detail::count(counters().allocations);
  const CaptureSession* session = stream.session();

  std::unique_lock lock(impl_->mutex);
  if (impl_->released_wait) [[unlikely]]
    impl_->collect_released();
  if (!impl_->deferred.empty()) [[unlikely]] {
    if (session != nullptr) {
      impl_->deferred.advance(*session, stream.id);
    } else {
      impl_->deferred.poll();
    }
  }
  Impl::Pool& pool = impl_->route(session);
  Block* block =
      bytes <= kLargestRequest ? impl_->take(pool, bytes, stream.id, session != nullptr) : nullptr;
  if (block != nullptr) [[likely]] {
    if (impl_->history.on()) [[unlikely]]
      impl_->history.allocated(block);
    return block;
  }
  impl_->history.out_of_memory(bytes);
  const Shortage shortage = impl_->shortage(bytes);
  const auto observers = impl_->observers;
  lock.unlock();
  for (const auto& [id, observer] : observers) observer(shortage);
  throw OutOfMemory(shortage.message);
}

void CachingAllocator::free(Block* block) noexcept {
  if (block == nullptr) return;
  const std::lock_guard lock(impl_->mutex);
  impl_->history.free_requested(block);
  if (block->uses != nullptr && !impl_->deferred.release(*block)) [[unlikely]]
    return;
  impl_->give_back(block);
  if (impl_->released_wait) [[unlikely]]
    impl_->collect_released();
}

void CachingAllocator::record_stream(Block* block, StreamState& stream) {
  // The stream of a block that is handed out does not change, so its own needs no lock.
  if (block == nullptr || block->stream == stream.id) return;
  const std::lock_guard lock(impl_->mutex);
  impl_->deferred.add_use(*block, stream);
}

void CachingAllocator::record_operation(Block* block, StreamState& stream,
                                        CaptureSession& session) {
  // A capture keeps alive what it uses from elsewhere.
  if (block == nullptr || block->stream == stream.id || capture_pool_of(block) != session.pool())
    return;
  const std::lock_guard lock(impl_->mutex);
  impl_->deferred.add_operation(*block, stream, session);
}

void* CachingAllocator::address(const Block* block) noexcept {
  return block != nullptr ? block->address : nullptr;
}

std::uint64_t CachingAllocator::pool_of(const Block* block) noexcept {
  return block != nullptr ? block->pool->id() : 0;
}

std::uint64_t CachingAllocator::capture_pool_of(const Block* block) noexcept {
  return block != nullptr && block->captured ? block->pool->id() : 0;
}

std::uint64_t CachingAllocator::create_pool(std::string name) {
  const std::uint64_t id = next_pool_id();
  if (name.empty()) name = "pool " + std::to_string(id);
  const std::lock_guard lock(impl_->mutex);
  impl_->pools.push_back(std::make_unique<Impl::Pool>(id, std::move(name), impl_->total));
  return id;
}

void CachingAllocator::retain_pool(std::uint64_t id) {
  const std::lock_guard lock(impl_->mutex);
  Impl::Pool* pool = impl_->find(id);
  CAPSTAN_CHECK(id != 0 && pool != nullptr, StateError, "retain_pool: no private pool ", id,
                " exists on ", impl_->runtime.device(), "; make one with graph_pool_handle");
  CAPSTAN_CHECK(pool->use_count > 0, StateError, "retain_pool: the last use of pool ", id, " (\"",
                pool->name, "\") is gone and its memory is on the way back to ",
                impl_->runtime.device(), "; keep a handle of it, or make a new pool");
  ++pool->use_count;
}

void CachingAllocator::release_pool(std::uint64_t id) noexcept {
  const std::lock_guard lock(impl_->mutex);
  Impl::Pool* pool = impl_->find(id);
  if (id == 0 || pool == nullptr || pool->use_count == 0) return;
  if (--pool->use_count != 0) return;
  pool->release_due = true;
  impl_->collect_released();
}

PinnedAllocator& CachingAllocator::pinned() noexcept { return impl_->pinned; }

AllocatorStats CachingAllocator::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->report();
}

void CachingAllocator::reset_peak_stats() {
  const std::lock_guard lock(impl_->mutex);
  for (const auto& pool : impl_->pools) pool->reset_peaks();
  impl_->total.peak_allocated_bytes = impl_->total.allocated_bytes;
  impl_->total.peak_reserved_bytes = impl_->total.reserved_bytes;
}

CachingAllocator& allocator(Device device) {
  using Slots = std::array<std::atomic<CachingAllocator*>, kMaxDevices>;
  static constinit std::array<Slots, 2> slots{};
  static constinit std::mutex making;

  CAPSTAN_CHECK(device.index >= 0 && device.index < kMaxDevices, DeviceError,
                "allocator: device numbers are 0 to ", kMaxDevices - 1, ", got ", device);
  auto& slot = slots[device.is_gpu() ? 1 : 0][static_cast<std::size_t>(device.index)];
  CachingAllocator* found = slot.load(std::memory_order_acquire);
  if (found == nullptr) [[unlikely]] {
    DeviceRuntime& device_runtime = runtime(device);
    const std::lock_guard lock(making);
    found = slot.load(std::memory_order_acquire);
    if (found == nullptr) {
      found = new CachingAllocator(device_runtime);
      slot.store(found, std::memory_order_release);
    }
  }
  return *found;
}

}  // namespace capstan

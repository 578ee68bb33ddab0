#include "framework/tensor/storage.h"

#include <mutex>
#include <unordered_map>
#include <utility>

#include "framework/core/error.h"
#include "framework/memory/caching_allocator.h"
#include "framework/runtime/stream.h"
#include "framework/tensor/newborn_storages.h"

namespace capstan {
namespace {

std::uint64_t next_serial() noexcept {
  static constinit std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// Few storages are refused at a time, so the reasons lie beside them.
struct Reasons {
  std::mutex mutex;
  std::unordered_map<const Storage*, std::shared_ptr<const std::string>> of;
};

Reasons& reasons() {
  static auto* const instance = new Reasons;  // outlives every static tensor
  return *instance;
}

}  // namespace

// Whole from the first line on: whatever throws then, the destructor cleans up.
Storage::Storage(Device device, std::size_t bytes) : Storage(device, nullptr, bytes, nullptr) {
  block_ = allocator(device).allocate(bytes, detail::current_stream_state(device));
  data_ = CachingAllocator::address(block_);
  if (CaptureSession* const session = detail::current_stream_state(device).session()) {
    newborns_ = NewbornStorages::of(*session, *this);
  }
}

Storage::Storage(Device device, void* data, std::size_t bytes, std::function<void()> release)
    : device_(device),
      data_(data),
      bytes_(bytes),
      serial_(next_serial()),
      release_(std::move(release)) {}

Storage::~Storage() {
  if (newborns_) static_cast<NewbornStorages&>(*newborns_).forget(*this);
  allow_use();
  if (StorageWatch* const watch = watch_.load(std::memory_order_acquire)) {
    watch->freed_.store(true, std::memory_order_release);
    watch->release();
  }
  if (block_ != nullptr) allocator(device_).free(block_);
  if (release_) release_();
}

void Storage::record_stream(const Stream& stream) const {
  CAPSTAN_CHECK(stream.device() == device_, DeviceError, "record_stream: the memory is on ",
                device_, " and the stream of ", stream.device());
  if (block_ != nullptr) allocator(device_).record_stream(block_, stream.state());
}

void Storage::record_operation(StreamState& stream, CaptureSession& session) const {
  if (block_ != nullptr) allocator(device_).record_operation(block_, stream, session);
}

void Storage::name_allocation(const char* operation) const {
  if (block_ != nullptr) allocator(device_).name_allocation(block_, operation);
}

StorageWatch& Storage::make_watch() const {
  StorageWatch* known = watch_.load(std::memory_order_acquire);
  if (known != nullptr) return *known;
  Ref<StorageWatch> made = make_ref<StorageWatch>();
  StorageWatch& mine = *made;
  if (watch_.compare_exchange_strong(known, &mine, std::memory_order_acq_rel)) {
    return *made.detach();  // the reference is this storage's own
  }
  return *known;
}

Ref<StorageWatch> Storage::watch() const { return Ref<StorageWatch>(&make_watch()); }

void Storage::tensor_left() const { make_watch().left_.fetch_add(1, std::memory_order_acq_rel); }

void Storage::tensor_returned() const noexcept {
  StorageWatch* const known = watch_.load(std::memory_order_acquire);
  if (known == nullptr) return;
  std::int64_t left = known->left_.load(std::memory_order_acquire);
  while (left > 0 && !known->left_.compare_exchange_weak(left, left - 1)) {
  }
}

void Storage::refuse_use(std::shared_ptr<const std::string> reason) {
  const std::lock_guard lock(reasons().mutex);
  if (reasons().of.insert_or_assign(this, std::move(reason)).second) {
    detail::refused_storages.fetch_add(1, std::memory_order_relaxed);
  }
  refused_.store(true, std::memory_order_release);
}

void Storage::allow_use() noexcept {
  if (!refused_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(reasons().mutex);
  refused_.store(false, std::memory_order_release);
  if (reasons().of.erase(this) != 0) {
    detail::refused_storages.fetch_sub(1, std::memory_order_relaxed);
  }
}

void Storage::throw_refused(const char* operation) const {
  std::shared_ptr<const std::string> reason;
  {
    const std::lock_guard lock(reasons().mutex);
    const auto found = reasons().of.find(this);
    if (found != reasons().of.end()) reason = found->second;
  }
  throw StateError(
      detail::concat(operation, ": ", reason ? *reason : "this memory is in no state to be read"));
}

std::uint64_t Storage::pool() const noexcept {
  return block_ != nullptr ? CachingAllocator::capture_pool_of(block_) : 0;
}

}  // namespace capstan

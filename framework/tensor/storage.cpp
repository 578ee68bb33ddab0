#include "framework/tensor/storage.h"

#include "framework/core/error.h"
#include "framework/memory/caching_allocator.h"
#include "framework/runtime/stream.h"

namespace capstan {
namespace {

std::uint64_t next_serial() noexcept {
  static constinit std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Storage::Storage(Device device, std::size_t bytes)
    : device_(device),
      bytes_(bytes),
      block_(allocator(device).allocate(bytes, detail::current_stream_state(device))),
      serial_(next_serial()) {
  data_ = CachingAllocator::address(block_);
}

Storage::Storage(Device device, void* data, std::size_t bytes, std::function<void()> release)
    : device_(device),
      data_(data),
      bytes_(bytes),
      serial_(next_serial()),
      release_(std::move(release)) {}

Storage::~Storage() {
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

std::uint64_t Storage::pool() const noexcept {
  return block_ != nullptr ? CachingAllocator::capture_pool_of(block_) : 0;
}

}  // namespace capstan

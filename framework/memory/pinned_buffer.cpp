#include "framework/memory/pinned_buffer.h"

#include <utility>

#include "framework/core/error.h"
#include "framework/memory/caching_allocator.h"

namespace capstan {

PinnedBuffer::PinnedBuffer(Device device, std::size_t bytes) : device_(device), bytes_(bytes) {
  if (bytes != 0) memory_ = allocator(device).pinned().allocate(bytes);
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : device_(other.device_),
      memory_(std::move(other.memory_)),
      bytes_(std::exchange(other.bytes_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void* PinnedBuffer::data() const noexcept { return memory_ ? memory_->data() : nullptr; }

void PinnedBuffer::record_use(const Stream& stream) const {
  CAPSTAN_CHECK(stream.device() == device_, DeviceError,
                "record_use: the page-locked memory is for ", device_, " and the stream of ",
                stream.device());
  if (memory_) allocator(device_).pinned().record_use(memory_, stream.state());
}

}  // namespace capstan

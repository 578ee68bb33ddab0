#include <utility>

#include "framework/core/error.h"
#include "framework/memory/caching_allocator.h"

namespace capstan {

PinnedBuffer::PinnedBuffer(Device device, std::size_t bytes) : device_(device), bytes_(bytes) {
  if (bytes == 0) return;
  data_ = runtime(device).allocate_pinned(bytes);
  CAPSTAN_CHECK(data_ != nullptr, OutOfMemory, "PinnedBuffer: no page-locked memory left for ",
                bytes, " bytes; use smaller batches or less prefetching");
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) runtime(device_).deallocate_pinned(data_);
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : device_(other.device_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace capstan

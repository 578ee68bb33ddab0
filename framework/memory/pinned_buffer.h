#pragma once

#include <cstddef>

#include "framework/core/device.h"
#include "framework/core/ref.h"
#include "framework/memory/pinned_allocator.h"
#include "framework/runtime/stream.h"

namespace capstan {

/// Page-locked host memory for asynchronous copies to and from `device`; plain memory for the CPU.
/// It comes from the cache of `allocator(device)` and goes back there when streams that use it are
/// done. Move-only.
///
/// Copies from it to `device`, of a tensor made with `from_pinned` say, may be captured: each
/// replay copies what the memory holds then, and the graph keeps the memory.
class PinnedBuffer {
 public:
  PinnedBuffer() noexcept = default;
  /// @throws OutOfMemory.
  PinnedBuffer(Device device, std::size_t bytes);
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer() = default;

  [[nodiscard]] Device device() const noexcept { return device_; }
  /// Null if empty.
  [[nodiscard]] void* data() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Keeps the memory; null if empty.
  [[nodiscard]] const Ref<PinnedMemory>& memory() const noexcept { return memory_; }
  /// The work given to `stream` up to now uses the memory. The library's own copies say so.
  void record_use(const Stream& stream) const;

 private:
  Device device_;
  Ref<PinnedMemory> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace capstan

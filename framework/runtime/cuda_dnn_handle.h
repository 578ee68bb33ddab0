#pragma once

#include <mutex>

#include "framework/runtime/stream.h"

struct cudnnContext;

namespace capstan {

/// cuDNN's handle for a stream, for the calling thread alone while this lives: the library allows
/// one thread at a time.
class [[nodiscard]] DnnHandle {
 public:
  /// Made on first use; permitted during a capture. @throws CudaError.
  explicit DnnHandle(StreamState& stream);
  DnnHandle(const DnnHandle&) = delete;
  DnnHandle& operator=(const DnnHandle&) = delete;

  [[nodiscard]] cudnnContext* get() const noexcept { return handle_; }

 private:
  std::unique_lock<std::mutex> lock_;
  cudnnContext* handle_ = nullptr;
};

namespace detail {
/// A stream of `device` is about to be destroyed: its handle will serve another one.
void release_dnn_handle(Device device, void* native_stream) noexcept;
}  // namespace detail

}  // namespace capstan

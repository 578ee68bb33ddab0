#pragma once

#include <cstddef>

// Addresses of a GPU and the memory behind them, through the driver's virtual memory functions,
// which are looked up at run time, so that nothing links the driver. See DeviceRuntime for what
// each promises; the caller makes the device current and the capture mode relaxed.
namespace capstan {

class CudaPages {
 public:
  explicit CudaPages(int device) noexcept;

  /// 0 if the GPU or its driver has no such functions.
  [[nodiscard]] std::size_t page_bytes() const noexcept { return page_bytes_; }
  [[nodiscard]] void* reserve(std::size_t bytes);
  void release(void* address, std::size_t bytes) noexcept;
  [[nodiscard]] bool map(void* address, std::size_t bytes);
  void unmap(void* address, std::size_t bytes) noexcept;

 private:
  const int device_;
  std::size_t page_bytes_ = 0;
};

}  // namespace capstan

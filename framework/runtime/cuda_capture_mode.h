#pragma once

#include <cuda_runtime_api.h>

#include "framework/runtime/cuda_check.h"

namespace capstan {

/// While it lives, the calling thread may make calls that CUDA otherwise refuses during a capture,
/// and that would invalidate it: raw allocations, queries, set-up of libraries. They do not become
/// part of the capture. It concerns captures of this thread and, in the global mode, of others.
class [[nodiscard]] RelaxedCaptureMode {
 public:
  RelaxedCaptureMode() noexcept { exchange(); }
  ~RelaxedCaptureMode() { exchange(); }
  RelaxedCaptureMode(const RelaxedCaptureMode&) = delete;
  RelaxedCaptureMode& operator=(const RelaxedCaptureMode&) = delete;

 private:
  void exchange() noexcept { CAPSTAN_CUDA_REPORT(cudaThreadExchangeStreamCaptureMode(&mode_)); }

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace capstan

#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>

#include "framework/core/error.h"

namespace capstan::detail {

inline void cuda_check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) [[likely]]
    return;
  (void)cudaGetLastError();  // clear it, or the next unrelated check reports this failure again
  throw CudaError(static_cast<int>(code), concat(call, " failed: ", cudaGetErrorName(code), " (",
                                                 cudaGetErrorString(code), ")"));
}

inline void cuda_report(cudaError_t code, const char* call) noexcept {
  if (code == cudaSuccess) [[likely]]
    return;
  (void)cudaGetLastError();
  // Both only say that the process is on its way out.
  if (code == cudaErrorCudartUnloading || code == cudaErrorContextIsDestroyed) return;
  std::fprintf(stderr, "capstan: %s failed during cleanup: %s (%s)\n", call, cudaGetErrorName(code),
               cudaGetErrorString(code));
}

}  // namespace capstan::detail

/// Throws CudaError naming the failed call, CUDA's name for the code and its explanation.
#define CAPSTAN_CUDA_CHECK(call) ::capstan::detail::cuda_check((call), #call)

/// For destructors: reports to stderr, never throws, stays quiet while the driver unloads.
#define CAPSTAN_CUDA_REPORT(call) ::capstan::detail::cuda_report((call), #call)

/// After `kernel<<<...>>>`: throws CudaError naming the kernel if the launch itself was refused.
#define CAPSTAN_CHECK_LAUNCH(kernel) \
  ::capstan::detail::cuda_check(cudaGetLastError(), "launch of " #kernel)

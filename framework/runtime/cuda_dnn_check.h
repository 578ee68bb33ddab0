#pragma once

#include <cudnn.h>

#include "framework/core/error.h"

namespace capstan::detail {

inline void cudnn_check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  throw CudaError(static_cast<int>(status), concat(call, " failed: ", cudnnGetErrorString(status)));
}

}  // namespace capstan::detail

/// Throws CudaError naming the failed call and the status; `code()` is the cudnnStatus_t.
#define CAPSTAN_CUDNN_CHECK(call) ::capstan::detail::cudnn_check((call), #call)

#pragma once

#include <cublasLt.h>

#include "framework/core/error.h"

namespace capstan::detail {

inline void cublas_check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  throw CudaError(static_cast<int>(status), concat(call, " failed: ", cublasLtGetStatusName(status),
                                                   " (", cublasLtGetStatusString(status), ")"));
}

}  // namespace capstan::detail

/// Throws CudaError naming the failed call and the status; `code()` is the cublasStatus_t.
#define CAPSTAN_CUBLAS_CHECK(call) ::capstan::detail::cublas_check((call), #call)

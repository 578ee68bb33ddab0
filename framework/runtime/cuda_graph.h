#pragma once

#include <cuda_runtime_api.h>

#include "framework/runtime/runtime.h"

namespace capstan {

/// Ends the native capture of `session` and takes over its graph; the capture has ended also when
/// this throws. Streams that did not come back are joined first, so that one that is given up ends
/// without an error of CUDA. @throws CaptureError with CUDA's reason if the capture was not well
/// formed.
[[nodiscard]] Ref<NativeGraph> end_cuda_capture(const CaptureSession& session);

}  // namespace capstan

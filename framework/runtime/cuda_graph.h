#pragma once

#include <cuda_runtime_api.h>

#include "framework/runtime/runtime.h"

namespace capstan {

/// Ends the native capture on `origin` and takes over its graph; the capture has ended also when
/// this throws. @throws CaptureError with CUDA's reason if the capture was not well formed.
[[nodiscard]] Ref<NativeGraph> end_cuda_capture(StreamState& origin);

}  // namespace capstan

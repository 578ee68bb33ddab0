#pragma once

#include <cuda_runtime_api.h>

#include "framework/runtime/stream.h"

namespace capstan {

[[nodiscard]] inline cudaStream_t native_stream(const StreamState& stream) noexcept {
  return static_cast<cudaStream_t>(stream.native);
}

}  // namespace capstan

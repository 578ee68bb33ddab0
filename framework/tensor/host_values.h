#pragma once

#include <cstddef>
#include <vector>

#include "framework/tensor/tensor.h"

namespace capstan::detail {

/// The elements of `x`, row-major, as host bytes. Waits for the device, and raises what its kernels
/// reported. @throws CaptureError naming `op` while the tensor's device captures.
[[nodiscard]] std::vector<std::byte> host_bytes(const Tensor& x, const char* op);

}  // namespace capstan::detail

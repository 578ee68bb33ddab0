#pragma once

#include <cstddef>
#include <vector>

#include "framework/runtime/forbidden.h"
#include "framework/tensor/tensor.h"

namespace capstan::detail {

/// The elements of `x`, row-major, as host bytes. Waits for the device, and raises what its kernels
/// reported. @throws CaptureError as `refuse_while_capturing` does for `call`.
[[nodiscard]] std::vector<std::byte> host_bytes(const Tensor& x, Forbidden call);

}  // namespace capstan::detail

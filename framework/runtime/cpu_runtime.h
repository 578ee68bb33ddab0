#pragma once

#include <memory>

#include "framework/runtime/runtime.h"

namespace capstan::cpu {

/// The CPU as a device, in inline mode: work submitted to a stream runs at once on the calling
/// thread. While a stream captures, its work is kept as {function, arguments} and a replay runs the
/// list on the raw addresses, holding no tensors, as a CUDA graph does.
[[nodiscard]] std::unique_ptr<DeviceRuntime> make_runtime();

}  // namespace capstan::cpu

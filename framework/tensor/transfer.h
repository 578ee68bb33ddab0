#pragma once

#include "framework/tensor/tensor.h"

namespace capstan {

/// Copies all elements of `from` to `to`, both contiguous, of one shape and dtype, on any two
/// devices. Device to device: in the order of the current streams of both. From and to host memory:
/// waits until the copy is done, and is refused while capturing, unless both are on the CPU.
/// @throws CaptureError, DeviceError.
void transfer(const Tensor& to, const Tensor& from);

/// Copies `bytes` from page-locked host memory to `to` in stream order without waiting; the buffer
/// must stay unchanged until the stream has passed. Recorded while capturing: a replay then copies
/// what the buffer holds at that time.
void transfer_from_pinned(const Tensor& to, const void* pinned);

}  // namespace capstan

#pragma once

#include "framework/memory/pinned_buffer.h"
#include "framework/tensor/tensor.h"

namespace capstan {

/// Copies all elements of `from` to `to`, both contiguous, of one shape and dtype, on any two
/// devices. Device to device: in the order of the current streams of both. From and to host memory:
/// waits until the copy is done, unless both are on the host. While the device's stream captures
/// that is refused, except from page-locked memory (PinnedBuffer): that is recorded, a replay
/// copies what the memory holds at that time, and the graph keeps the memory.
/// @throws CaptureError, DeviceError.
void transfer(const Tensor& to, const Tensor& from);

/// Copies `to` from the start of page-locked memory in stream order without waiting; the memory
/// must stay unchanged until the stream has passed. Recorded while capturing, as above.
/// @throws ValueError if the buffer is smaller than `to`.
void transfer_from_pinned(const Tensor& to, const PinnedBuffer& from);

}  // namespace capstan

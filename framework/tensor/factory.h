#pragma once

#include "framework/memory/pinned_buffer.h"
#include "framework/tensor/tensor.h"

namespace capstan {

struct TensorOptions {
  DType dtype = DType::float32;
  Device device = Device::cpu();
};

/// Uninitialised, dense row-major. @throws ShapeError on a negative size; OutOfMemory.
[[nodiscard]] Tensor empty(const Shape& shape, TensorOptions options = {});
/// Uninitialised, dense, with shape, dtype and device of `other`.
[[nodiscard]] Tensor empty_like(const Tensor& other);
[[nodiscard]] Tensor zeros(const Shape& shape, TensorOptions options = {},
                           Where where = Where::current());
[[nodiscard]] Tensor zeros_like(const Tensor& other, Where where = Where::current());
/// Wraps memory that the caller keeps alive until `release` is called (when the last view is gone).
[[nodiscard]] Tensor from_blob(void* data, const Shape& shape, TensorOptions options,
                               std::function<void()> release = {});
/// The start of page-locked memory as a host tensor, which keeps the memory. Copying from it to the
/// buffer's device may be captured: each replay copies what the memory holds then.
/// @throws ValueError if the buffer is smaller.
[[nodiscard]] Tensor from_pinned(const PinnedBuffer& buffer, const Shape& shape,
                                 DType dtype = DType::float32);

}  // namespace capstan

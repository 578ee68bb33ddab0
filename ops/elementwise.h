#pragma once

#include "framework/tensor/tensor.h"
#include "ops/kernels.h"

// Elementwise operations without gradients. Operands broadcast; results are new dense tensors of
// the common shape on the operands' device; the `_out` forms write to `y`, which has that very
// shape and may be one of the operands (same geometry) but not overlap one otherwise. On the GPU
// work is only enqueued. @throws ShapeError, DTypeError (operands of different or unsupported
// dtypes), DeviceError (operands on different devices), each naming the operation.
namespace capstan::ops {

/// Lower-case name, e.g. "add".
[[nodiscard]] const char* name_of(UnaryOp op) noexcept;
[[nodiscard]] const char* name_of(BinaryOp op) noexcept;

[[nodiscard]] Tensor unary(UnaryOp op, const Tensor& x);
void unary_out(UnaryOp op, const Tensor& x, const Tensor& y);

[[nodiscard]] Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor binary(BinaryOp op, const Tensor& a, double b);
[[nodiscard]] Tensor binary(BinaryOp op, double a, const Tensor& b);
void binary_out(BinaryOp op, const Tensor& a, const Tensor& b, const Tensor& y);
void binary_out(BinaryOp op, const Tensor& a, double b, const Tensor& y);

/// condition ? a : b; `condition` is bool, a and b of one dtype.
[[nodiscard]] Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

/// A dense row-major copy.
[[nodiscard]] Tensor clone(const Tensor& x);
/// `x` itself if it is dense row-major, else a copy.
[[nodiscard]] Tensor contiguous(const Tensor& x);
/// A copy in another dtype; `x` itself if it has that dtype.
[[nodiscard]] Tensor cast(const Tensor& x, DType dtype);
/// Copies `from`, broadcast and converted, into `to`; devices may differ (see transfer.h for when
/// that waits).
void copy(const Tensor& to, const Tensor& from);
void fill(const Tensor& y, double value);

}  // namespace capstan::ops

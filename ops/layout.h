#pragma once

#include <vector>

#include "framework/tensor/tensor.h"

namespace capstan::ops {

/// Joins tensors along `axis`; other sizes, dtypes and devices must agree. @throws ValueError if
/// there are none; ShapeError, DTypeError, DeviceError naming the position.
[[nodiscard]] Tensor cat(const std::vector<Tensor>& tensors, int axis);

/// y[i0, .., j, ..] = x[i0, .., index[i0, .., j, ..], ..] along `axis`; `index` (int64 or int32)
/// has the rank of x and its sizes except along `axis`. A bad index raises IndexError (on the GPU
/// at the next point where the host waits).
[[nodiscard]] Tensor gather(const Tensor& x, int axis, const Tensor& index);
/// Gradient of gather with respect to an x of `x_shape`; repeated indices add, in a fixed order.
[[nodiscard]] Tensor gather_backward(const Tensor& grad, int axis, const Tensor& index,
                                     const Shape& x_shape);
/// Slices of x at the positions `index` [count] of `axis`.
[[nodiscard]] Tensor index_select(const Tensor& x, int axis, const Tensor& index);
[[nodiscard]] Tensor index_select_backward(const Tensor& grad, int axis, const Tensor& index,
                                           const Shape& x_shape);
/// [..., classes]: 1 at the label, else 0. Labels int64 or int32, in [0, classes).
[[nodiscard]] Tensor one_hot(const Tensor& labels, std::int64_t classes,
                             DType dtype = DType::float32);

}  // namespace capstan::ops

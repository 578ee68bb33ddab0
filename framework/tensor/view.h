#pragma once

#include <optional>

#include "framework/tensor/tensor.h"

// Views without gradients: metadata arithmetic only. Users call the members of Tensor, which record
// gradients; ops and autograd build on these.
namespace capstan::view {

/// The storage of `base` under another geometry. @throws ShapeError if it reaches outside.
[[nodiscard]] Tensor as_strided(const Tensor& base, const Shape& shape, const Strides& strides,
                                std::int64_t offset);
/// A view of `shape` (one entry may be -1), or nothing if strides do not permit one.
/// @throws ShapeError  if the number of elements differs.
[[nodiscard]] std::optional<Tensor> reshape(const Tensor& x, const Shape& shape);
/// Fills in a -1. @throws ShapeError naming both shapes.
[[nodiscard]] Shape resolve_reshape(const Tensor& x, const Shape& shape);
[[nodiscard]] Tensor permute(const Tensor& x, const Axes& axes);
[[nodiscard]] Tensor transpose(const Tensor& x, int axis0, int axis1);
[[nodiscard]] Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::int64_t end,
                           std::int64_t step);
[[nodiscard]] Tensor select(const Tensor& x, int axis, std::int64_t index);
[[nodiscard]] Tensor expand(const Tensor& x, const Shape& shape);
[[nodiscard]] Tensor squeeze(const Tensor& x, int axis);
[[nodiscard]] Tensor squeeze_all(const Tensor& x);
[[nodiscard]] Tensor unsqueeze(const Tensor& x, int axis);
/// The same view as a new tensor object without a gradient slot.
[[nodiscard]] Tensor alias(const Tensor& x);

}  // namespace capstan::view

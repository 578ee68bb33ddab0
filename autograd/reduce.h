#pragma once

#include "framework/tensor/tensor.h"

// Differentiable reductions over `axes`, all of them if empty; reduced axes disappear, or stay with
// size 1 if `keepdim`. @throws IndexError, ValueError, ShapeError, DTypeError; see ops/reduce.h.
namespace capstan {

[[nodiscard]] Tensor sum(const Tensor& x, const Axes& axes = {}, bool keepdim = false,
                         Where where = Where::current());
[[nodiscard]] Tensor mean(const Tensor& x, const Axes& axes = {}, bool keepdim = false,
                          Where where = Where::current());
/// The gradient is shared equally among equal largest elements.
[[nodiscard]] Tensor max(const Tensor& x, const Axes& axes = {}, bool keepdim = false,
                         Where where = Where::current());
[[nodiscard]] Tensor min(const Tensor& x, const Axes& axes = {}, bool keepdim = false,
                         Where where = Where::current());
/// int64, no gradient.
[[nodiscard]] Tensor argmax(const Tensor& x, int axis, bool keepdim = false,
                            Where where = Where::current());

}  // namespace capstan

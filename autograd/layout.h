#pragma once

#include <vector>

#include "framework/random/generator.h"
#include "framework/tensor/tensor.h"

namespace capstan {

// Differentiable; see ops/layout.h for shapes and errors. `cat` takes different dtypes, which meet
// in the one of `promote_types`.
[[nodiscard]] Tensor cat(const std::vector<Tensor>& tensors, int axis = 0,
                         Where where = Where::current());
[[nodiscard]] Tensor gather(const Tensor& x, int axis, const Tensor& index,
                            Where where = Where::current());
[[nodiscard]] Tensor index_select(const Tensor& x, int axis, const Tensor& index,
                                  Where where = Where::current());
/// No gradient.
[[nodiscard]] Tensor one_hot(const Tensor& labels, std::int64_t classes,
                             DType dtype = DType::float32, Where where = Where::current());

/// Zeroes each element with probability p and divides the others by 1 - p, in training; else x.
/// Numbers come from `generator`, else from the device's default one; replays draw fresh ones.
[[nodiscard]] Tensor dropout(const Tensor& x, double p, bool training = true,
                             const Generator* generator = nullptr, Where where = Where::current());

}  // namespace capstan

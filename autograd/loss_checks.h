#pragma once

#include "framework/tensor/tensor.h"

namespace capstan::autograd {

/// @throws ShapeError naming `op` unless both have one shape.
inline void check_same_shape(const char* op, const Tensor& x, const Tensor& target) {
  CAPSTAN_CHECK(x.shape() == target.shape(), ShapeError, op,
                ": x and target must have one shape, got x ", x.shape(), " and target ",
                target.shape(), "; reshape or expand one of them");
}

}  // namespace capstan::autograd

#pragma once

#include "framework/random/generator.h"
#include "framework/tensor/tensor.h"

namespace capstan::ops {

struct Dropout {
  Tensor y;
  Tensor mask;  ///< bool, shape of x: true where kept
};

/// y = x / (1 - p) where kept, else 0; each element is dropped with probability p.
/// @throws ValueError unless 0 <= p <= 1; DTypeError unless floating; DeviceError if the generator
/// is
///   of another device.
[[nodiscard]] Dropout dropout(const Tensor& x, double p, const Generator& generator);

}  // namespace capstan::ops

// Host side only: the copy operation, which needs a kernel for every pair of dtypes and so has a
// source of its own.
#pragma once

#include "ops/kernels.h"

namespace capstan::gpu {

/// y = x, converted; the UnaryOp::copy of `unary`.
void convert(const UnaryArgs& args, StreamState& stream);

}  // namespace capstan::gpu

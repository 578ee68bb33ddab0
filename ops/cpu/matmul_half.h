#pragma once

#include "ops/kernels.h"

namespace capstan::cpu {

/// `matmul` for float16 and bfloat16.
void matmul_half(const MatmulArgs& args);

}  // namespace capstan::cpu

// Host side only: kernels that only move elements need one instance per size, not per dtype.
#pragma once

#include <cstdint>
#include <utility>

#include "framework/core/dtype.h"

namespace capstan::gpu {

/// Calls `body` with an unsigned type of the size of `dtype`.
template <typename Body>
void visit_size(DType dtype, Body&& body) {
  switch (size_of(dtype)) {
    case 1: return std::forward<Body>(body).template operator()<std::uint8_t>();
    case 2: return std::forward<Body>(body).template operator()<std::uint16_t>();
    case 4: return std::forward<Body>(body).template operator()<std::uint32_t>();
    default: return std::forward<Body>(body).template operator()<std::uint64_t>();
  }
}

}  // namespace capstan::gpu

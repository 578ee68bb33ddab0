#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/conv_kernels.h"

namespace capstan::cpu {

/// Outputs [begin, end) meet, at one tap, the inputs o * stride + offset inside of the image.
struct TapRange {
  std::int64_t begin, end;
  std::int64_t offset;
};

inline TapRange tap_range(const ConvAxis& axis, std::int64_t tap) {
  const std::int64_t offset = tap * axis.dilation - axis.padding;
  // Smallest o with o * stride >= bound; what lies before the first output does not count.
  const auto first_from = [&](std::int64_t bound) {
    return bound <= 0 ? 0 : std::min(axis.output, (bound + axis.stride - 1) / axis.stride);
  };
  const std::int64_t begin = first_from(-offset);
  return {begin, std::max(begin, first_from(axis.input - offset)), offset};
}

}  // namespace capstan::cpu

// What launchers and kernels share: grids capped and kernels grid-strided, so that any size is
// correct; and index arithmetic that divides in 32 bits wherever the numbers are that small.
#pragma once

#include <algorithm>
#include <cstdint>

#include "framework/runtime/cuda_check.h"
#include "framework/runtime/cuda_stream.h"
#include "ops/kernels.h"

namespace capstan::gpu {

inline constexpr int kWarpSize = 32;
inline constexpr int kBlockSize = 256;
inline constexpr std::int64_t kMaxBlocks = 1 << 16;

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Blocks for `work` items of which a block takes `per_block` in one pass of its grid-strided loop.
inline unsigned blocks_for(std::int64_t work, std::int64_t per_block) {
  return static_cast<unsigned>(std::clamp<std::int64_t>(ceil_div(work, per_block), 1, kMaxBlocks));
}

/// Number of this thread in a one-dimensional launch, and the number of threads there.
__device__ inline std::int64_t thread_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t thread_count() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

struct Quotient {
  std::int64_t quotient;
  std::int64_t remainder;
};

/// For numbers that are not negative.
__device__ inline Quotient divide(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) == 0) {
    const auto quotient = static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
    return {quotient, static_cast<std::uint32_t>(a) - quotient * static_cast<std::uint32_t>(b)};
  }
  return {a / b, a % b};
}

/// Position in a LoopNest, outermost first.
struct Coordinates {
  std::int64_t at[kMaxRank];
};

// Unrolled over all axes, so that the arrays stay in registers.
__device__ inline Coordinates coordinates(const LoopNest& loop, std::int64_t index) {
  Coordinates result;
#pragma unroll
  for (int axis = kMaxRank - 1; axis > 0; --axis) {
    if (axis >= loop.rank) continue;
    const Quotient split = divide(index, loop.sizes[axis]);
    result.at[axis] = split.remainder;
    index = split.quotient;
  }
  result.at[0] = index;
  return result;
}

__device__ inline std::int64_t offset(const Coordinates& coordinates, const std::int64_t* strides,
                                      int rank) {
  std::int64_t sum = 0;
#pragma unroll
  for (int axis = 0; axis < kMaxRank; ++axis) {
    if (axis < rank) sum += coordinates.at[axis] * strides[axis];
  }
  return sum;
}

__device__ inline std::int64_t offset(const LoopNest& loop, const std::int64_t* strides,
                                      std::int64_t index) {
  return offset(coordinates(loop, index), strides, loop.rank);
}

}  // namespace capstan::gpu

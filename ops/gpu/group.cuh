// Reductions within a warp or a block. Both combine in a fixed order and give every thread the same
// result, so a row can belong to either (or to one
// thread): a "group" of kThreads threads along threadIdx.x.
#pragma once

#include "ops/gpu/launch.cuh"

namespace capstan::gpu {

template <typename T>
__device__ T shuffle_xor(T value, int step) {
  return __shfl_xor_sync(0xffffffffu, value, step);
}

/// Butterfly, so that all lanes get the result; `op` must be commutative.
template <typename T, typename Op>
__device__ T warp_reduce(T value, Op op) {
#pragma unroll
  for (int step = kWarpSize / 2; step > 0; step /= 2) {
    value = op(value, shuffle_xor(value, step));
  }
  return value;
}

/// Over all kThreads threads of the block, which all call it.
template <int kThreads, typename T, typename Op>
__device__ T block_reduce(T value, Op op) {
  constexpr int kWarps = kThreads / kWarpSize;
  __shared__ T warps[kWarps];
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  value = warp_reduce(value, op);
  if (thread % kWarpSize == 0) warps[thread / kWarpSize] = value;
  __syncthreads();
  T result = warps[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) result = op(result, warps[warp]);
  __syncthreads();  // before the next call writes
  return result;
}

/// Over the group of the calling thread.
template <int kThreads, typename T, typename Op>
__device__ T group_reduce(T value, Op op) {
  if constexpr (kThreads == 1) {
    return value;
  } else if constexpr (kThreads == kWarpSize) {
    return warp_reduce(value, op);
  } else {
    return block_reduce<kThreads>(value, op);
  }
}

struct Add {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

/// The larger one; NaN in either wins.
struct Larger {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};

struct Smaller {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
};

/// Rows up to this length belong to a warp, longer ones to a block.
inline constexpr std::int64_t kWarpRowLength = 1024;

/// Threads of a block that holds one group of `threads`, or several if they are warps.
inline dim3 group_block(int threads) {
  return dim3(static_cast<unsigned>(threads), static_cast<unsigned>(kBlockSize / threads));
}

/// The group's number in the launch, and the number of groups there.
__device__ inline std::int64_t group_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
}
__device__ inline std::int64_t group_count() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.y;
}

}  // namespace capstan::gpu

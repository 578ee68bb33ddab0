// The last block of a launch to finish does what needs all of them, which saves a second launch.
// The counter wraps back to zero by itself, ready for the next launch on the stream.
#pragma once

#include "ops/gpu/launch.cuh"

namespace capstan::gpu {

/// True in all threads of the block that finishes last; what the other blocks wrote before the call
/// is then visible. All threads of all blocks call it, once.
__device__ inline bool is_last_block(unsigned* ticket) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    __threadfence();
    last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

}  // namespace capstan::gpu

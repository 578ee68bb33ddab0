// Argmax: a reduction over (value, index) pairs under a total order, hence the same answer however
// the work is split. Along a strided axis neighbouring outputs are neighbours in memory, so there a
// thread takes an output alone.

#include "framework/core/dtype_visit.h"
#include "ops/gpu/group.cuh"

namespace capstan::gpu {
namespace {

template <typename T>
struct Candidate {
  T value;
  std::int64_t index;
};

template <typename T>
__device__ Candidate<T> shuffle_xor(Candidate<T> candidate, int step) {
  return {static_cast<T>(__shfl_xor_sync(0xffffffffu, candidate.value, step)),
          __shfl_xor_sync(0xffffffffu, candidate.index, step)};
}

/// The larger value, NaN above all; of equals the first.
struct Better {
  template <typename T>
  __device__ Candidate<T> operator()(Candidate<T> a, Candidate<T> b) const {
    const bool a_is_nan = a.value != a.value;
    const bool b_is_nan = b.value != b.value;
    if (a_is_nan != b_is_nan) return a_is_nan ? a : b;
    if (!a_is_nan && a.value != b.value) return a.value > b.value ? a : b;
    return a.index < b.index ? a : b;
  }
};

// Launch: <<<blocks_for(outer, groups per block), group_block(kThreads)>>>.
template <int kThreads, typename T>
__global__ void __launch_bounds__(kBlockSize) argmax_kernel(ArgmaxArgs args) {
  for (std::int64_t outer = group_index(); outer < args.outer.numel; outer += group_count()) {
    const T* x = static_cast<const T*>(args.x) + offset(args.outer, args.x_outer_strides, outer);
    Candidate<Compute<T>> best{x[0], 0};
    for (std::int64_t i = threadIdx.x; i < args.count; i += kThreads) {
      best = Better{}(best, Candidate<Compute<T>>{x[i * args.inner_stride], i});
    }
    best = group_reduce<kThreads>(best, Better{});
    if (threadIdx.x == 0) args.y[outer] = best.index;
  }
}

template <int kThreads>
void launch(const ArgmaxArgs& args, StreamState& stream) {
  const dim3 block = group_block(kThreads);
  visit_all(args.dtype, "argmax", [&]<typename T>() {
    argmax_kernel<kThreads, T>
        <<<blocks_for(args.outer.numel, block.y), block, 0, native_stream(stream)>>>(args);
    CAPSTAN_CHECK_LAUNCH(argmax_kernel);
  });
}

}  // namespace

void argmax(const ArgmaxArgs& args, StreamState& stream) {
  if (args.inner_stride != 1 && args.outer.numel >= kBlockSize) {
    launch<1>(args, stream);
  } else if (args.count <= kWarpRowLength) {
    launch<kWarpSize>(args, stream);
  } else {
    launch<kBlockSize>(args, stream);
  }
}

}  // namespace capstan::gpu

// One engine for all elementwise kernels, over any number of operands. Dense operands move 16 bytes
// per thread and operand; everything else computes addresses from the loop nest. A number in place
// of a tensor is an operand without memory: testing for it costs nothing beside the memory traffic
// and saves two more instances of every kernel. Elements of 16 bits become float when they are
// loaded, so no operation sees them.
#pragma once

#include <algorithm>

#include "ops/gpu/launch.cuh"
#include "ops/gpu/pack.cuh"

namespace capstan::gpu {

/// An operand of a kernel: memory, or one number for all elements if `data` is null.
template <typename T>
struct Operand {
  const T* data;
  Compute<T> number;
};

template <typename T>
struct StridedOperand {
  Operand<T> operand;
  std::int64_t strides[kMaxRank];
};

template <typename T>
StridedOperand<T> tensor_operand(const Walk& walk) {
  StridedOperand<T> result{{static_cast<const T*>(walk.data), Compute<T>{}}, {}};
  std::copy(walk.strides, walk.strides + kMaxRank, result.strides);
  return result;
}

template <typename T>
StridedOperand<T> number_operand(double number) {
  return {{nullptr, static_cast<Compute<T>>(number)}, {}};
}

template <int kCount, typename T>
__device__ Pack<Compute<T>, kCount> load(const Operand<T>& operand, std::int64_t pack) {
  Pack<Compute<T>, kCount> result;
  if (operand.data != nullptr) {
    const auto stored = reinterpret_cast<const Pack<T, kCount>*>(operand.data)[pack];
#pragma unroll
    for (int i = 0; i < kCount; ++i) result.value[i] = stored.value[i];
    return result;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) result.value[i] = operand.number;
  return result;
}

template <int kCount, typename Out, typename Op, typename... In>
__device__ Pack<Out, kCount> map(const Op& op, const Pack<In, kCount>&... in) {
  Pack<Out, kCount> result;
#pragma unroll
  for (int i = 0; i < kCount; ++i) result.value[i] = static_cast<Out>(op(in.value[i]...));
  return result;
}

// Launch: <<<blocks_for(numel, kBlockSize * kCount), kBlockSize>>>. The result may be one of the
// operands: a thread loads what it needs before it stores.
template <int kCount, typename Op, typename Out, typename... In>
__global__ void __launch_bounds__(kBlockSize)
    dense_kernel(Op op, std::int64_t numel, Out* y, Operand<In>... in) {
  const std::int64_t packs = numel / kCount;
  for (std::int64_t i = thread_index(); i < packs; i += thread_count()) {
    reinterpret_cast<Pack<Out, kCount>*>(y)[i] = map<kCount, Out>(op, load<kCount>(in, i)...);
  }
  for (std::int64_t i = packs * kCount + thread_index(); i < numel; i += thread_count()) {
    y[i] = static_cast<Out>(op(load<1>(in, i).value[0]...));
  }
}

// Launch: <<<blocks_for(numel, kBlockSize), kBlockSize>>>.
template <typename Op, typename Out, typename... In>
__global__ void __launch_bounds__(kBlockSize)
    strided_kernel(Op op, LoopNest loop, Walk y, StridedOperand<In>... in) {
  for (std::int64_t i = thread_index(); i < loop.numel; i += thread_count()) {
    const Coordinates at = coordinates(loop, i);
    static_cast<Out*>(y.data)[offset(at, y.strides, loop.rank)] =
        static_cast<Out>(op(load<1>(in.operand, offset(at, in.strides, loop.rank)).value[0]...));
  }
}

/// Enqueues y = op(in...), element by element.
template <typename Out, typename Op, typename... In>
void launch_elementwise(Op op, const LoopNest& loop, const Walk& y, StreamState& stream,
                        const StridedOperand<In>&... in) {
  constexpr int kCount = static_cast<int>(16 / std::max({sizeof(Out), sizeof(In)...}));
  const bool packed = loop.contiguous && is_aligned_for_packs<Out, kCount>(y.data) &&
                      (is_aligned_for_packs<In, kCount>(in.operand.data) && ...);
  if (packed) {
    dense_kernel<kCount, Op, Out, In...>
        <<<blocks_for(loop.numel, kBlockSize * kCount), kBlockSize, 0, native_stream(stream)>>>(
            op, loop.numel, static_cast<Out*>(y.data), in.operand...);
    CAPSTAN_CHECK_LAUNCH(dense_kernel);
  } else {
    strided_kernel<Op, Out, In...>
        <<<blocks_for(loop.numel, kBlockSize), kBlockSize, 0, native_stream(stream)>>>(op, loop, y,
                                                                                       in...);
    CAPSTAN_CHECK_LAUNCH(strided_kernel);
  }
}

}  // namespace capstan::gpu

// Reductions without atomics, so that results repeat bit for bit: the split of the work depends on
// sizes alone and partial results are combined in a fixed order. Float sums accumulate in double,
// which is more accurate than pairwise summation and hides behind the memory traffic.
//
// Two shapes: a group (warp or block) walks along the inner loop of one output, for rows; or
// neighbouring threads take neighbouring outputs and walk down the inner loop together, for
// columns, where that is what makes loads coalesce. Few long outputs are split, and a second launch
// combines.

#include <limits>
#include <type_traits>

#include "framework/core/dtype_visit.h"
#include "framework/runtime/library_handles.h"
#include "ops/gpu/group.cuh"

namespace capstan::gpu {
namespace {

constexpr std::int64_t kWantedBlocks = 512;
constexpr std::int64_t kRowSplitLength = 4096;    // a block's share of a row at least
constexpr std::int64_t kColumnSplitLength = 256;  // a block's share of a column at least
constexpr std::int64_t kShortInner = 16;          // one thread does it alone
constexpr int kTileColumns = 32;

template <typename T>
using SumOf = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
template <typename T>
using ExtremeOf =
    std::conditional_t<std::is_integral_v<T> && (sizeof(T) < sizeof(int)), int, Compute<T>>;

/// What all kernels of one reduction share. Partial results are [splits, outer], or `partial` is
/// null and there is one split.
template <typename T, typename Sum, typename Op>
struct Reduction {
  Op op;
  Sum identity;
  double divisor;
  std::int64_t splits;
  std::int64_t split_length;
  Sum* partial;
  T* y;

  __device__ T finish(Sum sum) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(sum);
    } else {
      return static_cast<T>(sum / divisor);
    }
  }
  __device__ void store(std::int64_t split, std::int64_t outer, std::int64_t outputs,
                        Sum sum) const {
    if (partial != nullptr) {
      partial[split * outputs + outer] = sum;
    } else {
      y[outer] = finish(sum);
    }
  }
};

__device__ std::int64_t inner_offset(const ReduceArgs& args, std::int64_t index) {
  return args.inner.rank == 1 ? index * args.x_inner_strides[0]
                              : offset(args.inner, args.x_inner_strides, index);
}

// Launch: <<<blocks_for(outer * splits, groups per block), group_block(kThreads)>>>.
template <int kThreads, typename T, typename Sum, typename Op>
__global__ void __launch_bounds__(kBlockSize)
    reduce_rows_kernel(ReduceArgs args, Reduction<T, Sum, Op> reduction) {
  const std::int64_t outputs = args.outer.numel;
  for (std::int64_t group = group_index(); group < outputs * reduction.splits;
       group += group_count()) {
    const auto [split, outer] = divide(group, outputs);
    const T* x = static_cast<const T*>(args.x) + offset(args.outer, args.x_outer_strides, outer);
    const std::int64_t begin = split * reduction.split_length;
    const std::int64_t end = min(begin + reduction.split_length, args.inner.numel);

    Sum sum = reduction.identity;
    if (args.inner.contiguous) {
#pragma unroll 4
      for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
        sum = reduction.op(sum, static_cast<Sum>(x[i]));
      }
    } else {
      for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
        sum = reduction.op(sum, static_cast<Sum>(x[inner_offset(args, i)]));
      }
    }
    sum = group_reduce<kThreads>(sum, reduction.op);
    if (threadIdx.x == 0) reduction.store(split, outer, outputs, sum);
  }
}

// Launch: <<<dim3(blocks_for(outer, kColumns), splits), dim3(kColumns, kBlockSize / kColumns)>>>.
template <int kColumns, typename T, typename Sum, typename Op>
__global__ void __launch_bounds__(kBlockSize)
    reduce_columns_kernel(ReduceArgs args, Reduction<T, Sum, Op> reduction) {
  constexpr int kRows = kBlockSize / kColumns;
  __shared__ Sum tile[kRows][kColumns];
  const std::int64_t outputs = args.outer.numel;
  const std::int64_t split = blockIdx.y;
  const std::int64_t begin = split * reduction.split_length;
  const std::int64_t end = min(begin + reduction.split_length, args.inner.numel);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kColumns;

  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kColumns; first < outputs;
       first += step) {
    const std::int64_t outer = first + threadIdx.x;
    Sum sum = reduction.identity;
    if (outer < outputs) {
      const T* x = static_cast<const T*>(args.x) + offset(args.outer, args.x_outer_strides, outer);
#pragma unroll 4
      for (std::int64_t i = begin + threadIdx.y; i < end; i += kRows) {
        sum = reduction.op(sum, static_cast<Sum>(x[inner_offset(args, i)]));
      }
    }
    if constexpr (kRows > 1) {
      tile[threadIdx.y][threadIdx.x] = sum;
      __syncthreads();
      if (threadIdx.y == 0) {
#pragma unroll
        for (int row = 1; row < kRows; ++row) sum = reduction.op(sum, tile[row][threadIdx.x]);
      }
      __syncthreads();  // before the next tile overwrites
    }
    if (threadIdx.y == 0 && outer < outputs) reduction.store(split, outer, outputs, sum);
  }
}

// Launch: <<<blocks_for(outer, kBlockSize / kWarpSize), group_block(kWarpSize)>>>.
template <typename T, typename Sum, typename Op>
__global__ void __launch_bounds__(kBlockSize)
    combine_kernel(std::int64_t outputs, Reduction<T, Sum, Op> reduction) {
  for (std::int64_t outer = group_index(); outer < outputs; outer += group_count()) {
    Sum sum = reduction.identity;
    for (std::int64_t split = threadIdx.x; split < reduction.splits; split += kWarpSize) {
      sum = reduction.op(sum, reduction.partial[split * outputs + outer]);
    }
    sum = warp_reduce(sum, reduction.op);
    if (threadIdx.x == 0) reduction.y[outer] = reduction.finish(sum);
  }
}

enum class ReduceShape { warp_rows, block_rows, tiled_columns, short_columns };

ReduceShape shape_of(const ReduceArgs& args) {
  if (args.inner.numel <= kShortInner) return ReduceShape::short_columns;
  const bool outer_is_dense =
      args.outer.numel > 1 && args.outer.rank > 0 && args.x_outer_strides[args.outer.rank - 1] == 1;
  if (outer_is_dense && !args.inner.contiguous) return ReduceShape::tiled_columns;
  return args.inner.numel <= kWarpRowLength ? ReduceShape::warp_rows : ReduceShape::block_rows;
}

std::int64_t splits_of(const ReduceArgs& args, ReduceShape shape) {
  const auto choose = [&](std::int64_t blocks, std::int64_t shortest) {
    return std::clamp<std::int64_t>(std::min(kWantedBlocks / blocks, args.inner.numel / shortest),
                                    1, kWantedBlocks);
  };
  switch (shape) {
    case ReduceShape::block_rows: return choose(args.outer.numel, kRowSplitLength);
    case ReduceShape::tiled_columns:
      return choose(ceil_div(args.outer.numel, kTileColumns), kColumnSplitLength);
    default: return 1;
  }
}

template <typename T, typename Sum, typename Op>
void run(const ReduceArgs& args, Op op, Sum identity, StreamState& stream) {
  const cudaStream_t native = native_stream(stream);
  const std::int64_t outputs = args.outer.numel;
  const ReduceShape shape = shape_of(args);
  const std::int64_t splits = splits_of(args, shape);
  Reduction<T, Sum, Op> reduction{
      .op = op,
      .identity = identity,
      .divisor = args.op == ReduceOp::mean ? static_cast<double>(args.inner.numel) : 1.0,
      .splits = splits,
      .split_length = ceil_div(args.inner.numel, splits),
      .partial = nullptr,
      .y = static_cast<T*>(args.y),
  };
  if (splits > 1) {
    const auto bytes = static_cast<std::size_t>(splits * outputs) * sizeof(Sum);
    reduction.partial = static_cast<Sum*>(scratch(stream, bytes).data);
  }

  switch (shape) {
    case ReduceShape::warp_rows:
      reduce_rows_kernel<kWarpSize, T, Sum, Op>
          <<<blocks_for(outputs, kBlockSize / kWarpSize), group_block(kWarpSize), 0, native>>>(
              args, reduction);
      break;
    case ReduceShape::block_rows:
      reduce_rows_kernel<kBlockSize, T, Sum, Op>
          <<<blocks_for(outputs * splits, 1), group_block(kBlockSize), 0, native>>>(args,
                                                                                    reduction);
      break;
    case ReduceShape::tiled_columns:
      reduce_columns_kernel<kTileColumns, T, Sum, Op>
          <<<dim3(blocks_for(outputs, kTileColumns), static_cast<unsigned>(splits)),
             group_block(kTileColumns), 0, native>>>(args, reduction);
      break;
    case ReduceShape::short_columns:
      reduce_columns_kernel<kBlockSize, T, Sum, Op>
          <<<blocks_for(outputs, kBlockSize), kBlockSize, 0, native>>>(args, reduction);
      break;
  }
  CAPSTAN_CHECK_LAUNCH(reduce_kernel);

  if (splits > 1) {
    combine_kernel<T, Sum, Op>
        <<<blocks_for(outputs, kBlockSize / kWarpSize), group_block(kWarpSize), 0, native>>>(
            outputs, reduction);
    CAPSTAN_CHECK_LAUNCH(combine_kernel);
  }
}

}  // namespace

void reduce(const ReduceArgs& args, StreamState& stream) {
  switch (args.op) {
    case ReduceOp::sum:
    case ReduceOp::mean:
      visit_numeric(args.dtype, "reduce",
                    [&]<typename T>() { run<T, SumOf<T>>(args, Add{}, SumOf<T>{0}, stream); });
      return;
    case ReduceOp::max:
      visit_all(args.dtype, "reduce", [&]<typename T>() {
        using Limits = std::numeric_limits<ExtremeOf<T>>;
        run<T, ExtremeOf<T>>(args, Larger{},
                             Limits::has_infinity ? -Limits::infinity() : Limits::lowest(), stream);
      });
      return;
    case ReduceOp::min:
      visit_all(args.dtype, "reduce", [&]<typename T>() {
        using Limits = std::numeric_limits<ExtremeOf<T>>;
        run<T, ExtremeOf<T>>(args, Smaller{},
                             Limits::has_infinity ? Limits::infinity() : Limits::max(), stream);
      });
      return;
  }
}

}  // namespace capstan::gpu

// Cross-entropy from logits, with the mean over rows in the same launch: the block that finishes
// last adds the rows' losses up in an order that depends on their number alone.

#include <limits>

#include "framework/core/dtype_visit.h"
#include "framework/runtime/library_handles.h"
#include "ops/gpu/faults.cuh"
#include "ops/gpu/group.cuh"
#include "ops/gpu/ticket.cuh"

namespace capstan::gpu {
namespace {

// Launch: <<<blocks_for(rows, groups per block), group_block(kThreads)>>>. `lowest` is -infinity.
template <int kThreads, typename T, typename Label>
__global__ void __launch_bounds__(kBlockSize)
    cross_entropy_kernel(CrossEntropyArgs args, T lowest, unsigned* ticket) {
  T* loss = static_cast<T*>(args.loss);
  for (std::int64_t row = group_index(); row < args.rows; row += group_count()) {
    const T* x = static_cast<const T*>(args.x) + row * args.cols;

    T largest = lowest;
    for (std::int64_t c = threadIdx.x; c < args.cols; c += kThreads) {
      largest = Larger{}(largest, x[c]);
    }
    largest = group_reduce<kThreads>(largest, Larger{});
    if (largest == lowest) largest = T{0};  // else a row of -inf gives -inf - -inf

    T sum = T{0};
    for (std::int64_t c = threadIdx.x; c < args.cols; c += kThreads) sum += ::exp(x[c] - largest);
    sum = group_reduce<kThreads>(sum, Add{});

    if (threadIdx.x == 0) {
      const T logsumexp = largest + ::log(sum);
      static_cast<T*>(args.logsumexp)[row] = logsumexp;
      const std::int64_t label = static_cast<const Label*>(args.labels)[row];
      const bool valid = label >= 0 && label < args.cols;
      if (!valid) report_fault(args.faults, args.site, row, label, args.cols);
      loss[row] = valid ? logsumexp - x[label] : T{0};
    }
  }

  if (args.reduced == nullptr || !is_last_block(ticket)) return;
  const std::int64_t thread = threadIdx.y * blockDim.x + threadIdx.x;
  double total = 0.0;
  // Past the first-level cache, which does not see what other blocks write.
#pragma unroll 8
  for (std::int64_t row = thread; row < args.rows; row += kBlockSize) total += __ldcg(loss + row);
  total = block_reduce<kBlockSize>(total, Add{});
  if (thread == 0) *static_cast<T*>(args.reduced) = static_cast<T>(args.scale * total);
}

// Launch: <<<blocks_for(rows * cols, kBlockSize), kBlockSize>>>, a thread for each element.
template <typename T, typename Label>
__global__ void __launch_bounds__(kBlockSize)
    cross_entropy_backward_kernel(CrossEntropyBackwardArgs args) {
  const T* x = static_cast<const T*>(args.x);
  const T* grad = static_cast<const T*>(args.grad);
  const T scale = static_cast<T>(args.scale);
  for (std::int64_t i = thread_index(); i < args.rows * args.cols; i += thread_count()) {
    const auto [row, c] = divide(i, args.cols);
    const std::int64_t label = static_cast<const Label*>(args.labels)[row];
    T value = T{0};
    if (label >= 0 && label < args.cols) {
      const T probability = ::exp(x[i] - static_cast<const T*>(args.logsumexp)[row]);
      value = scale * grad[args.grad_is_scalar ? 0 : row] * (probability - T(c == label));
    }
    static_cast<T*>(args.dx)[i] = value;
  }
}

template <int kThreads>
void launch(const CrossEntropyArgs& args, StreamState& stream) {
  const dim3 block = group_block(kThreads);
  const unsigned blocks = blocks_for(args.rows, block.y);
  unsigned* const ticket = args.reduced != nullptr ? scratch(stream, 0).ticket : nullptr;
  visit_full_floating(args.dtype, "cross_entropy", [&]<typename T>() {
    visit_index(args.label_dtype, "cross_entropy", [&]<typename Label>() {
      cross_entropy_kernel<kThreads, T, Label><<<blocks, block, 0, native_stream(stream)>>>(
          args, -std::numeric_limits<T>::infinity(), ticket);
      CAPSTAN_CHECK_LAUNCH(cross_entropy_kernel);
    });
  });
}

}  // namespace

void cross_entropy(const CrossEntropyArgs& args, StreamState& stream) {
  if (args.cols <= kWarpRowLength) {
    launch<kWarpSize>(args, stream);
  } else {
    launch<kBlockSize>(args, stream);
  }
}

void cross_entropy_backward(const CrossEntropyBackwardArgs& args, StreamState& stream) {
  const unsigned blocks = blocks_for(args.rows * args.cols, kBlockSize);
  visit_full_floating(args.dtype, "cross_entropy_backward", [&]<typename T>() {
    visit_index(args.label_dtype, "cross_entropy_backward", [&]<typename Label>() {
      cross_entropy_backward_kernel<T, Label>
          <<<blocks, kBlockSize, 0, native_stream(stream)>>>(args);
      CAPSTAN_CHECK_LAUNCH(cross_entropy_backward_kernel);
    });
  });
}

}  // namespace capstan::gpu

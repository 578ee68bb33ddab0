// Softmax by row. A group (a warp for short rows, a block for long ones) owns a row, so rows need
// no memory between passes; x is read again from cache rather than kept. A thread reads an element
// for the last time just before it writes it, so y may be x.

#include <limits>

#include "framework/core/dtype_visit.h"
#include "ops/gpu/group.cuh"

namespace capstan::gpu {
namespace {

// Launch: <<<blocks_for(rows, groups per block), group_block(kThreads)>>>. `lowest` is -infinity.
template <int kThreads, typename T>
__global__ void __launch_bounds__(kBlockSize) softmax_kernel(SoftmaxArgs args, Compute<T> lowest) {
  using C = Compute<T>;
  for (std::int64_t row = group_index(); row < args.rows; row += group_count()) {
    const T* x = static_cast<const T*>(args.x) + row * args.cols;
    T* y = static_cast<T*>(args.y) + row * args.cols;

    C largest = lowest;
    for (std::int64_t c = threadIdx.x; c < args.cols; c += kThreads) {
      largest = Larger{}(largest, static_cast<C>(x[c]));
    }
    largest = group_reduce<kThreads>(largest, Larger{});

    C sum = C{0};
    for (std::int64_t c = threadIdx.x; c < args.cols; c += kThreads) sum += ::exp(x[c] - largest);
    sum = group_reduce<kThreads>(sum, Add{});

    if (args.log) {
      const C log_sum = ::log(sum);
      for (std::int64_t c = threadIdx.x; c < args.cols; c += kThreads) {
        y[c] = static_cast<T>(x[c] - largest - log_sum);
      }
    } else {
      const C scale = C{1} / sum;
      for (std::int64_t c = threadIdx.x; c < args.cols; c += kThreads) {
        y[c] = static_cast<T>(::exp(x[c] - largest) * scale);
      }
    }
  }
}

// Launch: as softmax_kernel.
template <int kThreads, typename T>
__global__ void __launch_bounds__(kBlockSize) softmax_backward_kernel(SoftmaxBackwardArgs args) {
  using C = Compute<T>;
  for (std::int64_t row = group_index(); row < args.rows; row += group_count()) {
    const T* grad = static_cast<const T*>(args.grad) + row * args.cols;
    const T* y = static_cast<const T*>(args.y) + row * args.cols;
    T* dx = static_cast<T*>(args.dx) + row * args.cols;

    C sum = C{0};
    for (std::int64_t c = threadIdx.x; c < args.cols; c += kThreads) {
      const C g = grad[c];
      sum += args.log ? g : g * y[c];
    }
    sum = group_reduce<kThreads>(sum, Add{});

    for (std::int64_t c = threadIdx.x; c < args.cols; c += kThreads) {
      const C g = grad[c];
      const C value = y[c];
      dx[c] = static_cast<T>(args.log ? g - ::exp(value) * sum : value * (g - sum));
    }
  }
}

template <int kThreads>
void launch(const SoftmaxArgs& args, StreamState& stream) {
  const dim3 block = group_block(kThreads);
  const unsigned blocks = blocks_for(args.rows, block.y);
  visit_floating(args.dtype, "softmax", [&]<typename T>() {
    softmax_kernel<kThreads, T><<<blocks, block, 0, native_stream(stream)>>>(
        args, -std::numeric_limits<Compute<T>>::infinity());
    CAPSTAN_CHECK_LAUNCH(softmax_kernel);
  });
}

template <int kThreads>
void launch(const SoftmaxBackwardArgs& args, StreamState& stream) {
  const dim3 block = group_block(kThreads);
  const unsigned blocks = blocks_for(args.rows, block.y);
  visit_floating(args.dtype, "softmax_backward", [&]<typename T>() {
    softmax_backward_kernel<kThreads, T><<<blocks, block, 0, native_stream(stream)>>>(args);
    CAPSTAN_CHECK_LAUNCH(softmax_backward_kernel);
  });
}

}  // namespace

void softmax(const SoftmaxArgs& args, StreamState& stream) {
  if (args.cols <= kWarpRowLength) {
    launch<kWarpSize>(args, stream);
  } else {
    launch<kBlockSize>(args, stream);
  }
}

void softmax_backward(const SoftmaxBackwardArgs& args, StreamState& stream) {
  if (args.cols <= kWarpRowLength) {
    launch<kWarpSize>(args, stream);
  } else {
    launch<kBlockSize>(args, stream);
  }
}

}  // namespace capstan::gpu

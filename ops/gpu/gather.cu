// Gather, its gradient and one-hot. The gradient gives each (outer, inner) column to one thread,
// which adds in the order of the indices: repeated indices need no atomics and results repeat.

#include "framework/core/dtype_visit.h"
#include "ops/gpu/element_size.cuh"
#include "ops/gpu/faults.cuh"
#include "ops/gpu/launch.cuh"

namespace capstan::gpu {
namespace {

// Launch: <<<blocks_for(outer * count * inner, kBlockSize), kBlockSize>>>, a thread for each y.
template <typename T, typename Index>
__global__ void __launch_bounds__(kBlockSize) gather_kernel(GatherArgs args) {
  const std::int64_t numel = args.outer * args.count * args.inner;
  for (std::int64_t i = thread_index(); i < numel; i += thread_count()) {
    const auto [row, inner] = divide(i, args.inner);
    const auto [outer, j] = divide(row, args.count);
    const std::int64_t position = args.shared_index ? j : i;
    const std::int64_t index = static_cast<const Index*>(args.index)[position];
    T value = T{0};
    if (index >= 0 && index < args.axis) {
      value = static_cast<const T*>(args.x)[(outer * args.axis + index) * args.inner + inner];
    } else {
      report_fault(args.faults, args.site, position, index, args.axis);
    }
    static_cast<T*>(args.y)[i] = value;
  }
}

// Launch: <<<blocks_for(outer * inner, kBlockSize), kBlockSize>>>, a thread for each column; dx has
// been zeroed.
template <typename T, typename Index>
__global__ void __launch_bounds__(kBlockSize) gather_backward_kernel(GatherBackwardArgs args) {
  for (std::int64_t column = thread_index(); column < args.outer * args.inner;
       column += thread_count()) {
    const auto [outer, inner] = divide(column, args.inner);
    const T* grad = static_cast<const T*>(args.grad) + outer * args.count * args.inner + inner;
    T* dx = static_cast<T*>(args.dx) + outer * args.axis * args.inner + inner;
    const Index* indices = static_cast<const Index*>(args.index);
    if (!args.shared_index) indices += outer * args.count * args.inner + inner;
    const std::int64_t index_step = args.shared_index ? 1 : args.inner;
    for (std::int64_t j = 0; j < args.count; ++j) {
      const std::int64_t index = indices[j * index_step];
      if (index >= 0 && index < args.axis) dx[index * args.inner] += grad[j * args.inner];
    }
  }
}

// Launch: <<<blocks_for(rows * classes, kBlockSize), kBlockSize>>>.
template <typename T, typename Label>
__global__ void __launch_bounds__(kBlockSize) one_hot_kernel(OneHotArgs args) {
  for (std::int64_t i = thread_index(); i < args.rows * args.classes; i += thread_count()) {
    const auto [row, c] = divide(i, args.classes);
    const std::int64_t label = static_cast<const Label*>(args.labels)[row];
    if (c == 0 && (label < 0 || label >= args.classes)) {
      report_fault(args.faults, args.site, row, label, args.classes);
    }
    static_cast<T*>(args.y)[i] = static_cast<T>(c == label);
  }
}

}  // namespace

void gather(const GatherArgs& args, StreamState& stream) {
  const unsigned blocks = blocks_for(args.outer * args.count * args.inner, kBlockSize);
  visit_size(args.dtype, [&]<typename Bits>() {
    visit_index(args.index_dtype, "gather", [&]<typename Index>() {
      gather_kernel<Bits, Index><<<blocks, kBlockSize, 0, native_stream(stream)>>>(args);
      CAPSTAN_CHECK_LAUNCH(gather_kernel);
    });
  });
}

void gather_backward(const GatherBackwardArgs& args, StreamState& stream) {
  const cudaStream_t native = native_stream(stream);
  const auto bytes =
      static_cast<std::size_t>(args.outer * args.axis * args.inner) * size_of(args.dtype);
  CAPSTAN_CUDA_CHECK(cudaMemsetAsync(args.dx, 0, bytes, native));
  const unsigned blocks = blocks_for(args.outer * args.inner, kBlockSize);
  visit_full_floating(args.dtype, "gather_backward", [&]<typename T>() {
    visit_index(args.index_dtype, "gather_backward", [&]<typename Index>() {
      gather_backward_kernel<T, Index><<<blocks, kBlockSize, 0, native>>>(args);
      CAPSTAN_CHECK_LAUNCH(gather_backward_kernel);
    });
  });
}

void one_hot(const OneHotArgs& args, StreamState& stream) {
  const unsigned blocks = blocks_for(args.rows * args.classes, kBlockSize);
  visit_all(args.dtype, "one_hot", [&]<typename T>() {
    visit_index(args.label_dtype, "one_hot", [&]<typename Label>() {
      one_hot_kernel<T, Label><<<blocks, kBlockSize, 0, native_stream(stream)>>>(args);
      CAPSTAN_CHECK_LAUNCH(one_hot_kernel);
    });
  });
}

}  // namespace capstan::gpu

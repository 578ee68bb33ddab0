// Pooling, a thread for each element that is written: of y, and of dx, whose thread looks through
// the windows that may have it. No two threads add to one element, so sums need no atomics.

#include "framework/core/dtype_visit.h"
#include "ops/gpu/launch.cuh"
#include "ops/pool_kernels.h"
#include "ops/pool_windows.h"

namespace capstan::gpu {
namespace {

struct Place {
  std::int64_t plane, row, column;
};

__device__ Place place_of(std::int64_t index, std::int64_t height, std::int64_t width) {
  const Quotient line = divide(index, width);
  const Quotient plane = divide(line.quotient, height);
  return {plane.quotient, plane.remainder, line.remainder};
}

// Launch of all: <<<blocks_for(numel, kBlockSize), kBlockSize>>>, numel that of what is written.
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
    max_pool_kernel(MaxPoolArgs args, std::int64_t numel) {
  using C = Compute<T>;
  const PoolSizes& s = args.sizes;
  for (std::int64_t i = thread_index(); i < numel; i += thread_count()) {
    const Place at = place_of(i, s.height.output, s.width.output);
    const PoolWindow rows = pool_window(s.height, at.row);
    const PoolWindow columns = pool_window(s.width, at.column);
    const T* x = static_cast<const T*>(args.x) + at.plane * s.height.input * s.width.input;
    std::int64_t best = rows.begin * s.width.input + columns.begin;
    C largest = x[best];
    for (std::int64_t r = rows.begin; r < rows.end; r += s.height.dilation) {
      for (std::int64_t c = columns.begin; c < columns.end; c += s.width.dilation) {
        const C value = x[r * s.width.input + c];
        // The first NaN stays.
        if (value > largest || (value != value && largest == largest)) {
          largest = value;
          best = r * s.width.input + c;
        }
      }
    }
    static_cast<T*>(args.y)[i] = static_cast<T>(largest);
    args.indices[i] = best;
  }
}

/// Calls `body(index of the output in its plane, row, column)` for the outputs over an input.
template <typename Body>
__device__ void for_each_output(const PoolSizes& s, const Place& at, const Body& body) {
  const PoolOutputs rows = pool_outputs(s.height, at.row);
  const PoolOutputs columns = pool_outputs(s.width, at.column);
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    for (std::int64_t c = columns.begin; c < columns.end; ++c) body(r * s.width.output + c, r, c);
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockSize)
    max_pool_backward_kernel(MaxPoolBackwardArgs args, std::int64_t numel) {
  using C = Compute<T>;
  const PoolSizes& s = args.sizes;
  for (std::int64_t i = thread_index(); i < numel; i += thread_count()) {
    const Place at = place_of(i, s.height.input, s.width.input);
    const std::int64_t first = at.plane * s.height.output * s.width.output;
    const std::int64_t own = at.row * s.width.input + at.column;
    C sum{0};
    for_each_output(s, at, [&](std::int64_t o, std::int64_t, std::int64_t) {
      if (args.indices[first + o] == own) sum += static_cast<const T*>(args.grad)[first + o];
    });
    static_cast<T*>(args.dx)[i] = static_cast<T>(sum);
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockSize)
    avg_pool_kernel(AvgPoolArgs args, std::int64_t numel) {
  using C = Compute<T>;
  const PoolSizes& s = args.sizes;
  for (std::int64_t i = thread_index(); i < numel; i += thread_count()) {
    const Place at = place_of(i, s.height.output, s.width.output);
    const PoolWindow rows = pool_window(s.height, at.row, args.count_padding);
    const PoolWindow columns = pool_window(s.width, at.column, args.count_padding);
    const T* x = static_cast<const T*>(args.x) + at.plane * s.height.input * s.width.input;
    C sum{0};
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      for (std::int64_t c = columns.begin; c < columns.end; ++c) sum += x[r * s.width.input + c];
    }
    static_cast<T*>(args.y)[i] = static_cast<T>(sum / static_cast<C>(rows.count * columns.count));
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockSize)
    avg_pool_backward_kernel(AvgPoolArgs args, std::int64_t numel) {
  using C = Compute<T>;
  const PoolSizes& s = args.sizes;
  for (std::int64_t i = thread_index(); i < numel; i += thread_count()) {
    const Place at = place_of(i, s.height.input, s.width.input);
    const T* grad = static_cast<const T*>(args.y) + at.plane * s.height.output * s.width.output;
    C sum{0};
    for_each_output(s, at, [&](std::int64_t o, std::int64_t row, std::int64_t column) {
      const std::int64_t count = pool_window(s.height, row, args.count_padding).count *
                                 pool_window(s.width, column, args.count_padding).count;
      sum += grad[o] / static_cast<C>(count);
    });
    static_cast<T*>(args.x)[i] = static_cast<T>(sum);
  }
}

std::int64_t inputs_of(const PoolSizes& s) { return s.planes * s.height.input * s.width.input; }
std::int64_t outputs_of(const PoolSizes& s) { return s.planes * s.height.output * s.width.output; }

}  // namespace

void max_pool(const MaxPoolArgs& args, StreamState& stream) {
  const std::int64_t numel = outputs_of(args.sizes);
  visit_floating(args.dtype, "max_pool2d", [&]<typename T>() {
    max_pool_kernel<T>
        <<<blocks_for(numel, kBlockSize), kBlockSize, 0, native_stream(stream)>>>(args, numel);
    CAPSTAN_CHECK_LAUNCH(max_pool_kernel);
  });
}

void max_pool_backward(const MaxPoolBackwardArgs& args, StreamState& stream) {
  const std::int64_t numel = inputs_of(args.sizes);
  visit_floating(args.dtype, "max_pool2d_backward", [&]<typename T>() {
    max_pool_backward_kernel<T>
        <<<blocks_for(numel, kBlockSize), kBlockSize, 0, native_stream(stream)>>>(args, numel);
    CAPSTAN_CHECK_LAUNCH(max_pool_backward_kernel);
  });
}

void avg_pool(const AvgPoolArgs& args, StreamState& stream) {
  const std::int64_t numel = outputs_of(args.sizes);
  visit_floating(args.dtype, "avg_pool2d", [&]<typename T>() {
    avg_pool_kernel<T>
        <<<blocks_for(numel, kBlockSize), kBlockSize, 0, native_stream(stream)>>>(args, numel);
    CAPSTAN_CHECK_LAUNCH(avg_pool_kernel);
  });
}

void avg_pool_backward(const AvgPoolArgs& args, StreamState& stream) {
  const std::int64_t numel = inputs_of(args.sizes);
  visit_floating(args.dtype, "avg_pool2d_backward", [&]<typename T>() {
    avg_pool_backward_kernel<T>
        <<<blocks_for(numel, kBlockSize), kBlockSize, 0, native_stream(stream)>>>(args, numel);
    CAPSTAN_CHECK_LAUNCH(avg_pool_backward_kernel);
  });
}

}  // namespace capstan::gpu

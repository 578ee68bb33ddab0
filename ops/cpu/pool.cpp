#include <algorithm>
#include <limits>

#include "framework/core/dtype_visit.h"
#include "framework/runtime/parallel.h"
#include "ops/pool_kernels.h"
#include "ops/pool_windows.h"

namespace capstan::cpu {
namespace {

constexpr std::int64_t kGrain = 16384;  // elements that pay for another thread

std::int64_t inputs_of(const PoolSizes& s) { return s.height.input * s.width.input; }
std::int64_t outputs_of(const PoolSizes& s) { return s.height.output * s.width.output; }

/// Calls `body(plane)` on several threads; a thread owns whole planes, so that it may add to them.
template <typename Body>
void for_each_plane(const PoolSizes& s, const Body& body) {
  const std::int64_t grain =
      std::max<std::int64_t>(1, kGrain / std::max(inputs_of(s), outputs_of(s)));
  parallel_for(s.planes, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t plane = begin; plane < end; ++plane) body(plane);
  });
}

/// Calls `body(output, rows, columns)` for the windows of a plane, row-major.
template <typename Body>
void for_each_window(const PoolSizes& s, bool count_padding, const Body& body) {
  std::int64_t output = 0;
  for (std::int64_t y = 0; y < s.height.output; ++y) {
    const PoolWindow rows = pool_window(s.height, y, count_padding);
    for (std::int64_t x = 0; x < s.width.output; ++x) {
      body(output++, rows, pool_window(s.width, x, count_padding));
    }
  }
}

template <typename T>
void largest(const MaxPoolArgs& args) {
  const PoolSizes& s = args.sizes;
  for_each_plane(s, [&](std::int64_t plane) {
    const T* const x = static_cast<const T*>(args.x) + plane * inputs_of(s);
    T* const y = static_cast<T*>(args.y) + plane * outputs_of(s);
    std::int64_t* const indices = args.indices + plane * outputs_of(s);
    for_each_window(s, false, [&](std::int64_t o, PoolWindow rows, PoolWindow columns) {
      std::int64_t best = rows.begin * s.width.input + columns.begin;
      for (std::int64_t r = rows.begin; r < rows.end; r += s.height.dilation) {
        for (std::int64_t c = columns.begin; c < columns.end; c += s.width.dilation) {
          const std::int64_t at = r * s.width.input + c;
          // The first NaN stays.
          if (x[at] > x[best] || (x[at] != x[at] && x[best] == x[best])) best = at;
        }
      }
      y[o] = x[best];
      indices[o] = best;
    });
  });
}

template <typename T>
void largest_backward(const MaxPoolBackwardArgs& args) {
  const PoolSizes& s = args.sizes;
  for_each_plane(s, [&](std::int64_t plane) {
    const T* const grad = static_cast<const T*>(args.grad) + plane * outputs_of(s);
    const std::int64_t* const indices = args.indices + plane * outputs_of(s);
    T* const dx = static_cast<T*>(args.dx) + plane * inputs_of(s);
    std::fill_n(dx, inputs_of(s), T{0});
    for (std::int64_t o = 0; o < outputs_of(s); ++o) dx[indices[o]] += grad[o];
  });
}

template <typename T>
void mean(const AvgPoolArgs& args) {
  const PoolSizes& s = args.sizes;
  for_each_plane(s, [&](std::int64_t plane) {
    const T* const x = static_cast<const T*>(args.x) + plane * inputs_of(s);
    T* const y = static_cast<T*>(args.y) + plane * outputs_of(s);
    for_each_window(s, args.count_padding,
                    [&](std::int64_t o, PoolWindow rows, PoolWindow columns) {
                      double sum = 0.0;
                      for (std::int64_t r = rows.begin; r < rows.end; ++r) {
                        for (std::int64_t c = columns.begin; c < columns.end; ++c) {
                          sum += static_cast<double>(x[r * s.width.input + c]);
                        }
                      }
                      y[o] = static_cast<T>(sum / static_cast<double>(rows.count * columns.count));
                    });
  });
}

template <typename T>
void mean_backward(const AvgPoolArgs& args) {
  const PoolSizes& s = args.sizes;
  for_each_plane(s, [&](std::int64_t plane) {
    T* const dx = static_cast<T*>(args.x) + plane * inputs_of(s);
    const T* const grad = static_cast<const T*>(args.y) + plane * outputs_of(s);
    std::fill_n(dx, inputs_of(s), T{0});
    for_each_window(s, args.count_padding,
                    [&](std::int64_t o, PoolWindow rows, PoolWindow columns) {
                      const T share = grad[o] / static_cast<T>(rows.count * columns.count);
                      for (std::int64_t r = rows.begin; r < rows.end; ++r) {
                        for (std::int64_t c = columns.begin; c < columns.end; ++c) {
                          dx[r * s.width.input + c] += share;
                        }
                      }
                    });
  });
}

}  // namespace

void max_pool(const MaxPoolArgs& args) {
  visit_full_floating(args.dtype, "max_pool2d", [&]<typename T>() { largest<T>(args); });
}

void max_pool_backward(const MaxPoolBackwardArgs& args) {
  visit_full_floating(args.dtype, "max_pool2d_backward",
                      [&]<typename T>() { largest_backward<T>(args); });
}

void avg_pool(const AvgPoolArgs& args) {
  visit_full_floating(args.dtype, "avg_pool2d", [&]<typename T>() { mean<T>(args); });
}

void avg_pool_backward(const AvgPoolArgs& args) {
  visit_full_floating(args.dtype, "avg_pool2d_backward",
                      [&]<typename T>() { mean_backward<T>(args); });
}

}  // namespace capstan::cpu

// Where each channel has a kernel of its own there is no product of matrices to gain from: taps are
// added up directly, row by row.

#include "ops/cpu/conv_depthwise.h"

#include <algorithm>

#include "framework/core/dtype_visit.h"
#include "framework/runtime/parallel.h"
#include "ops/cpu/conv_taps.h"
#include "ops/cpu/row_sums.h"

namespace capstan::cpu {
namespace {

constexpr std::int64_t kGrain = 32768;  // multiplications that pay for another thread

/// Calls `body(channel)` for `count` channels of `work` multiplications each, on several threads.
template <typename Body>
void for_each_channel(std::int64_t count, std::int64_t work, const Body& body) {
  parallel_for(count, std::max<std::int64_t>(1, kGrain / work),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t c = begin; c < end; ++c) body(c);
               });
}

std::int64_t plane_work(const ConvSizes& s) {
  return s.height.output * s.width.output * s.height.kernel * s.width.kernel;
}

/// Calls `body(tap, x offset, y offset, count)` for the stretches of one plane where a row of
/// outputs meets a row of inputs; the inputs are width.stride apart.
template <typename Body>
void for_each_meeting(const ConvSizes& s, const Body& body) {
  for (std::int64_t ky = 0; ky < s.height.kernel; ++ky) {
    const TapRange down = tap_range(s.height, ky);
    for (std::int64_t kx = 0; kx < s.width.kernel; ++kx) {
      const TapRange across = tap_range(s.width, kx);
      if (across.begin == across.end) continue;
      for (std::int64_t row = down.begin; row < down.end; ++row) {
        const std::int64_t y = row * s.height.stride + down.offset;
        const std::int64_t x = across.begin * s.width.stride + across.offset;
        body(ky * s.width.kernel + kx, y * s.width.input + x, row * s.width.output + across.begin,
             across.end - across.begin);
      }
    }
  }
}

template <typename T>
struct Plane {
  T* x;
  T* weight;
  T* y;
};

/// Channel `group` of image `n`.
template <typename T>
Plane<T> plane_of(const ConvArgs& args, std::int64_t n, std::int64_t group) {
  const ConvSizes& s = args.sizes;
  const std::int64_t index = n * s.groups + group;
  return {static_cast<T*>(args.x) + index * s.height.input * s.width.input,
          static_cast<T*>(args.weight) + group * s.height.kernel * s.width.kernel,
          static_cast<T*>(args.y) + index * s.height.output * s.width.output};
}

template <typename T>
void forward(const ConvArgs& args) {
  const ConvSizes& s = args.sizes;
  const T* const bias = static_cast<const T*>(args.bias);
  const std::int64_t stride = s.width.stride;
  for_each_channel(s.batch * s.groups, plane_work(s), [&](std::int64_t index) {
    const std::int64_t group = index % s.groups;
    const Plane<T> plane = plane_of<T>(args, index / s.groups, group);
    std::fill_n(plane.y, s.height.output * s.width.output, bias != nullptr ? bias[group] : T{0});
    for_each_meeting(s,
                     [&](std::int64_t tap, std::int64_t from, std::int64_t to, std::int64_t count) {
                       const T weight = plane.weight[tap];
                       const T* const x = plane.x + from;
                       T* const y = plane.y + to;
                       if (stride == 1) {
#pragma GCC ivdep
                         for (std::int64_t i = 0; i < count; ++i) y[i] += weight * x[i];
                       } else {
                         for (std::int64_t i = 0; i < count; ++i) y[i] += weight * x[i * stride];
                       }
                     });
  });
}

template <typename T>
void input_gradient(const ConvArgs& args) {
  const ConvSizes& s = args.sizes;
  const std::int64_t stride = s.width.stride;
  for_each_channel(s.batch * s.groups, plane_work(s), [&](std::int64_t index) {
    const Plane<T> plane = plane_of<T>(args, index / s.groups, index % s.groups);
    std::fill_n(plane.x, s.height.input * s.width.input, T{0});
    for_each_meeting(s,
                     [&](std::int64_t tap, std::int64_t to, std::int64_t from, std::int64_t count) {
                       const T weight = plane.weight[tap];
                       T* const x = plane.x + to;
                       const T* const y = plane.y + from;
                       if (stride == 1) {
#pragma GCC ivdep
                         for (std::int64_t i = 0; i < count; ++i) x[i] += weight * y[i];
                       } else {
                         for (std::int64_t i = 0; i < count; ++i) x[i * stride] += weight * y[i];
                       }
                     });
  });
}

template <typename T>
void weight_gradient(const ConvArgs& args) {
  const ConvSizes& s = args.sizes;
  const std::int64_t stride = s.width.stride;
  for_each_channel(s.groups, s.batch * plane_work(s), [&](std::int64_t group) {
    T* const dweight = plane_of<T>(args, 0, group).weight;
    std::fill_n(dweight, s.height.kernel * s.width.kernel, T{0});
    for (std::int64_t n = 0; n < s.batch; ++n) {
      const Plane<T> plane = plane_of<T>(args, n, group);
      for_each_meeting(
          s, [&](std::int64_t tap, std::int64_t x, std::int64_t y, std::int64_t count) {
            dweight[tap] += static_cast<T>(row_sum_of(
                count, [&](std::int64_t i) { return plane.x[x + i * stride] * plane.y[y + i]; }));
          });
    }
  });
}

}  // namespace

void conv_depthwise(const ConvArgs& args) {
  visit_full_floating(args.dtype, "conv2d", [&]<typename T>() { forward<T>(args); });
}

void conv_depthwise_input_gradient(const ConvArgs& args) {
  visit_full_floating(args.dtype, "conv2d", [&]<typename T>() { input_gradient<T>(args); });
}

void conv_depthwise_weight_gradient(const ConvArgs& args) {
  visit_full_floating(args.dtype, "conv2d", [&]<typename T>() { weight_gradient<T>(args); });
}

}  // namespace capstan::cpu

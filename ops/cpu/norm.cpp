#include "ops/norm_kernels.h"

#include <algorithm>
#include <cmath>

#include "framework/core/dtype_visit.h"
#include "framework/runtime/parallel.h"
#include "ops/cpu/row_sums.h"

namespace capstan::cpu {
namespace {

constexpr std::int64_t kGrain = 32768;  // elements that pay for another thread

std::int64_t count_of(const ChannelSizes& sizes) { return sizes.outer * sizes.inner; }

/// Sum of value(offset) over the elements of channel `c`, in an order that the sizes decide.
template <typename Value>
double channel_sum(const ChannelSizes& sizes, std::int64_t c, const Value& value) {
  if (sizes.inner == 1) {
    return row_sum_of(sizes.outer, [&](std::int64_t i) { return value(i * sizes.channels + c); });
  }
  double total = 0.0;
  for (std::int64_t o = 0; o < sizes.outer; ++o) {
    const std::int64_t first = (o * sizes.channels + c) * sizes.inner;
    total += row_sum_of(sizes.inner, [&](std::int64_t i) { return value(first + i); });
  }
  return total;
}

/// Calls `body(c)` for each channel, on several threads.
template <typename Body>
void for_each_channel(const ChannelSizes& sizes, const Body& body) {
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / count_of(sizes));
  parallel_for(sizes.channels, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) body(c);
  });
}

/// Calls `body(offset, channel, count, channel_step)` for dense stretches of the elements: of one
/// channel, or, where each has a single element, through all channels.
template <typename Body>
void for_each_stretch(const ChannelSizes& sizes, const Body& body) {
  const bool across = sizes.inner == 1;
  const std::int64_t length = across ? sizes.channels : sizes.inner;
  const std::int64_t stretches = across ? sizes.outer : sizes.outer * sizes.channels;
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / length);
  parallel_for(stretches, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t s = begin; s < end; ++s) {
      body(s * length, across ? 0 : s % sizes.channels, length, across ? 1 : 0);
    }
  });
}

template <typename T>
void statistics(const BatchStatsArgs& args) {
  using S = Compute<T>;
  const T* const x = static_cast<const T*>(args.x);
  S* const running_mean = static_cast<S*>(args.running_mean);
  S* const running_var = static_cast<S*>(args.running_var);
  const double momentum =
      args.batches != nullptr ? 1.0 / static_cast<double>(*args.batches + 1) : args.momentum;
  const double count = static_cast<double>(count_of(args.sizes));
  const auto channel = [&](std::int64_t c) {
    double mean = 0.0;
    double variance = 0.0;
    if (x == nullptr) {
      mean = static_cast<double>(running_mean[c]);
      variance = static_cast<double>(running_var[c]);
    } else {
      mean =
          channel_sum(args.sizes, c, [&](std::int64_t i) { return static_cast<S>(x[i]); }) / count;
      const double squares = channel_sum(args.sizes, c, [&](std::int64_t i) {
        const double d = static_cast<double>(static_cast<S>(x[i])) - mean;
        return d * d;
      });
      variance = squares / count;
      if (running_mean != nullptr) {
        const auto follow = [&](S& value, double to) {
          value = static_cast<S>((1.0 - momentum) * static_cast<double>(value) + momentum * to);
        };
        follow(running_mean[c], mean);
        follow(running_var[c], squares / (count - 1.0));
      }
    }
    static_cast<S*>(args.mean)[c] = static_cast<S>(mean);
    static_cast<S*>(args.inv_std)[c] = static_cast<S>(1.0 / std::sqrt(variance + args.eps));
  };
  if (x == nullptr) {
    for (std::int64_t c = 0; c < args.sizes.channels; ++c) channel(c);
  } else {
    for_each_channel(args.sizes, channel);
  }
}

template <typename T>
void normalise(const BatchNormArgs& args) {
  using S = Compute<T>;
  const S* const mean = static_cast<const S*>(args.mean);
  const S* const inv_std = static_cast<const S*>(args.inv_std);
  const S* const weight = static_cast<const S*>(args.weight);
  const S* const bias = static_cast<const S*>(args.bias);
  for_each_stretch(
      args.sizes, [&](std::int64_t at, std::int64_t first, std::int64_t length, std::int64_t step) {
        const T* x = static_cast<const T*>(args.x) + at;
        T* y = static_cast<T*>(args.y) + at;
        const auto scale_of = [=](std::int64_t c) {
          return weight != nullptr ? inv_std[c] * weight[c] : inv_std[c];
        };
        const auto shift_of = [=](std::int64_t c) { return bias != nullptr ? bias[c] : S{0}; };
        if (step == 0) {
          const S centre = mean[first];
          const S scale = scale_of(first);
          const S shift = shift_of(first);
#pragma GCC ivdep
          for (std::int64_t i = 0; i < length; ++i) {
            y[i] = static_cast<T>((x[i] - centre) * scale + shift);
          }
        } else {
#pragma GCC ivdep
          for (std::int64_t c = 0; c < length; ++c) {
            y[c] = static_cast<T>((x[c] - mean[c]) * scale_of(c) + shift_of(c));
          }
        }
      });
}

template <typename T>
void backward(const BatchNormBackwardArgs& args) {
  using S = Compute<T>;
  const T* const all_g = static_cast<const T*>(args.grad);
  const T* const all_x = static_cast<const T*>(args.x);
  const S* const mean = static_cast<const S*>(args.mean);
  const S* const inv_std = static_cast<const S*>(args.inv_std);
  const S* const weight = static_cast<const S*>(args.weight);
  S* const dweight = static_cast<S*>(args.dweight);
  S* const dbias = static_cast<S*>(args.dbias);
  for_each_channel(args.sizes, [&](std::int64_t c) {
    dbias[c] = static_cast<S>(
        channel_sum(args.sizes, c, [&](std::int64_t i) { return static_cast<S>(all_g[i]); }));
    const double centre = static_cast<double>(mean[c]);
    dweight[c] = static_cast<S>(
        channel_sum(args.sizes, c,
                    [&](std::int64_t i) {
                      return static_cast<double>(static_cast<S>(all_g[i])) *
                             (static_cast<double>(static_cast<S>(all_x[i])) - centre);
                    }) *
        static_cast<double>(inv_std[c]));
  });
  if (args.dx == nullptr) return;
  const S share = args.through_stats ? S{1} / static_cast<S>(count_of(args.sizes)) : S{0};
  for_each_stretch(
      args.sizes, [&](std::int64_t at, std::int64_t first, std::int64_t length, std::int64_t step) {
        const T* g = all_g + at;
        const T* x = all_x + at;
        T* dx = static_cast<T*>(args.dx) + at;
#pragma GCC ivdep
        for (std::int64_t i = 0; i < length; ++i) {
          const std::int64_t c = first + i * step;
          const S scale = weight != nullptr ? inv_std[c] * weight[c] : inv_std[c];
          const S n = (x[i] - mean[c]) * inv_std[c];
          dx[i] = static_cast<T>(scale * (g[i] - share * (dbias[c] + n * dweight[c])));
        }
      });
}

}  // namespace

void batch_stats(const BatchStatsArgs& args) {
  visit_floating(args.dtype, "batch_norm", [&]<typename T>() { statistics<T>(args); });
}

void batch_norm(const BatchNormArgs& args) {
  visit_floating(args.dtype, "batch_norm", [&]<typename T>() { normalise<T>(args); });
}

void batch_norm_backward(const BatchNormBackwardArgs& args) {
  visit_floating(args.dtype, "batch_norm_backward", [&]<typename T>() { backward<T>(args); });
}

}  // namespace capstan::cpu

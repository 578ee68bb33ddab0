#pragma once

#include <cstdint>
#include <type_traits>

// Reductions over one dense row. Lanes side by side let the loops vectorise, and fix the order of
// the additions: it depends on the length alone.
namespace capstan::cpu {

/// Sums of float run in double, which is more exact than pairwise summation and as fast, since
/// memory is the limit.
template <typename T>
using Accumulator = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;

inline constexpr std::int64_t kLanes = 32;

/// Sum of value(0) .. value(count - 1).
template <typename Value>
auto row_sum_of(std::int64_t count, const Value& value) {
  using Sum = Accumulator<decltype(value(std::int64_t{0}))>;
  Sum total = 0;
  std::int64_t i = 0;
  if (count >= kLanes) {
    Sum lanes[kLanes] = {};
    for (; i + kLanes <= count; i += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] += static_cast<Sum>(value(i + lane));
      }
    }
    for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
      for (std::int64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
    }
    total = lanes[0];
  }
  // Values first, so that they are computed side by side.
  Sum rest[kLanes];
  const std::int64_t left = count - i;
  for (std::int64_t lane = 0; lane < left; ++lane) rest[lane] = static_cast<Sum>(value(i + lane));
  for (std::int64_t lane = 0; lane < left; ++lane) total += rest[lane];
  return total;
}

template <typename T>
Accumulator<T> row_sum(const T* x, std::int64_t count) {
  return row_sum_of(count, [=](std::int64_t i) { return x[i]; });
}

/// NaN wins: the comparison with itself takes it, and nothing is larger than it.
struct Larger {
  template <typename T>
  T operator()(T best, T x) const {
    return x > best || x != x ? x : best;
  }
};

struct Smaller {
  template <typename T>
  T operator()(T best, T x) const {
    return x < best || x != x ? x : best;
  }
};

/// The best of x[0] .. x[count - 1] under `choose`, count >= 1.
template <typename T, typename Choose>
T row_best(const T* x, std::int64_t count, Choose choose) {
  T best = x[0];
  std::int64_t i = 0;
  if (count >= kLanes) {
    T lanes[kLanes];
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = x[lane];
    for (i = kLanes; i + kLanes <= count; i += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] = choose(lanes[lane], x[i + lane]);
      }
    }
    for (std::int64_t lane = 0; lane < kLanes; ++lane) best = choose(best, lanes[lane]);
  }
  for (; i < count; ++i) best = choose(best, x[i]);
  return best;
}

template <typename T>
T row_maximum(const T* x, std::int64_t count) {
  return row_best(x, count, Larger{});
}

}  // namespace capstan::cpu

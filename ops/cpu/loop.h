#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "framework/runtime/parallel.h"
#include "ops/kernels.h"

// Walking a LoopNest: everything comes down to innermost rows, which are plain loops that the
// compiler vectorises. A result may be one of the operands with the same geometry, hence `ivdep`
// and not `restrict`.
namespace capstan::cpu {

/// Elements that pay for waking another thread: cheap arithmetic, and a function such as exp.
inline constexpr std::int64_t kCheapGrain = 32768;
inline constexpr std::int64_t kCostlyGrain = 4096;

/// Calls `row(offsets, count)` for stretches of the innermost loop, on several threads.
template <std::size_t N, typename Row>
void for_each_row(const LoopNest& loop, const std::array<const std::int64_t*, N>& strides,
                  std::int64_t grain, const Row& row) {
  const int last = loop.rank - 1;
  parallel_for(loop.numel, grain, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t index[kMaxRank];
    std::array<std::int64_t, N> offsets{};
    std::int64_t rest = begin;
    for (int axis = last; axis >= 0; --axis) {
      index[axis] = rest % loop.sizes[axis];
      rest /= loop.sizes[axis];
      for (std::size_t i = 0; i < N; ++i) offsets[i] += index[axis] * strides[i][axis];
    }
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t count = std::min(loop.sizes[last] - index[last], end - at);
      row(offsets, count);
      at += count;
      for (std::size_t i = 0; i < N; ++i) offsets[i] -= index[last] * strides[i][last];
      index[last] = 0;
      for (int axis = last - 1; axis >= 0; --axis) {
        for (std::size_t i = 0; i < N; ++i) offsets[i] += strides[i][axis];
        if (++index[axis] < loop.sizes[axis]) break;
        for (std::size_t i = 0; i < N; ++i) offsets[i] -= index[axis] * strides[i][axis];
        index[axis] = 0;
      }
    }
  });
}

/// y = f(x), where f takes a Compute<X>.
template <typename X, typename Y, typename F>
void map(const LoopNest& loop, const Walk& x_walk, const Walk& y_walk, std::int64_t grain, F f) {
  const X* const x_data = static_cast<const X*>(x_walk.data);
  Y* const y_data = static_cast<Y*>(y_walk.data);
  const std::int64_t x_step = x_walk.strides[loop.rank - 1];
  const std::int64_t y_step = y_walk.strides[loop.rank - 1];
  const bool dense = x_step == 1 && y_step == 1;
  for_each_row<2>(loop, {x_walk.strides, y_walk.strides}, grain,
                  [&](const std::array<std::int64_t, 2>& at, std::int64_t count) {
                    const X* x = x_data + at[0];
                    Y* y = y_data + at[1];
                    if (dense) {
#pragma GCC ivdep
                      for (std::int64_t i = 0; i < count; ++i) y[i] = static_cast<Y>(f(x[i]));
                    } else {
                      for (std::int64_t i = 0; i < count; ++i)
                        y[i * y_step] = static_cast<Y>(f(x[i * x_step]));
                    }
                  });
}

/// y = f(a, b), where f takes two Compute<X>.
template <typename X, typename Y, typename F>
void map(const LoopNest& loop, const Walk& a_walk, const Walk& b_walk, const Walk& y_walk,
         std::int64_t grain, F f) {
  const X* const a_data = static_cast<const X*>(a_walk.data);
  const X* const b_data = static_cast<const X*>(b_walk.data);
  Y* const y_data = static_cast<Y*>(y_walk.data);
  const std::int64_t a_step = a_walk.strides[loop.rank - 1];
  const std::int64_t b_step = b_walk.strides[loop.rank - 1];
  const std::int64_t y_step = y_walk.strides[loop.rank - 1];
  for_each_row<3>(loop, {a_walk.strides, b_walk.strides, y_walk.strides}, grain,
                  [&](const std::array<std::int64_t, 3>& at, std::int64_t count) {
                    const X* a = a_data + at[0];
                    const X* b = b_data + at[1];
                    Y* y = y_data + at[2];
                    if (y_step == 1 && a_step == 1 && b_step == 1) {
#pragma GCC ivdep
                      for (std::int64_t i = 0; i < count; ++i) y[i] = static_cast<Y>(f(a[i], b[i]));
                    } else if (y_step == 1 && a_step == 1 && b_step == 0) {
                      const X repeated = *b;
#pragma GCC ivdep
                      for (std::int64_t i = 0; i < count; ++i)
                        y[i] = static_cast<Y>(f(a[i], repeated));
                    } else if (y_step == 1 && a_step == 0 && b_step == 1) {
                      const X repeated = *a;
#pragma GCC ivdep
                      for (std::int64_t i = 0; i < count; ++i)
                        y[i] = static_cast<Y>(f(repeated, b[i]));
                    } else {
                      for (std::int64_t i = 0; i < count; ++i) {
                        y[i * y_step] = static_cast<Y>(f(a[i * a_step], b[i * b_step]));
                      }
                    }
                  });
}

}  // namespace capstan::cpu

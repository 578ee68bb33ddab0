#include <algorithm>
#include <atomic>

#include "framework/core/dtype_visit.h"
#include "ops/cpu/loop.h"
#include "ops/kernels.h"

namespace capstan::cpu {
namespace {

/// Reports the first bad index, whichever thread met one first.
template <typename Index>
void report_first(const Index* index, std::int64_t count, std::int64_t bound, FaultRecord* faults,
                  std::int32_t site) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (index[i] < 0 || index[i] >= bound) {
      return report_fault(faults, site, i, static_cast<std::int64_t>(index[i]), bound);
    }
  }
}

template <typename T, typename Index>
void gather_with(const GatherArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  const Index* index = static_cast<const Index*>(args.index);
  T* y = static_cast<T*>(args.y);
  std::atomic<bool> bad{false};
  // A row is one (outer, j), `inner` elements long.
  const std::int64_t rows = args.outer * args.count;
  const std::int64_t grain = std::max<std::int64_t>(1, kCheapGrain / args.inner);
  parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* from = x + row / args.count * args.axis * args.inner;
      T* to = y + row * args.inner;
      if (args.shared_index) {
        const Index at = index[row % args.count];
        const bool valid = at >= 0 && at < args.axis;
        if (!valid) bad.store(true, std::memory_order_relaxed);
        if (valid) std::copy_n(from + at * args.inner, args.inner, to);
        if (!valid) std::fill_n(to, args.inner, T{0});
        continue;
      }
      const Index* indices = index + row * args.inner;
      for (std::int64_t i = 0; i < args.inner; ++i) {
        const bool valid = indices[i] >= 0 && indices[i] < args.axis;
        if (!valid) bad.store(true, std::memory_order_relaxed);
        to[i] = valid ? from[indices[i] * args.inner + i] : T{0};
      }
    }
  });
  if (!bad.load(std::memory_order_relaxed)) return;
  report_first(index, args.shared_index ? args.count : rows * args.inner, args.axis, args.faults,
               args.site);
}

/// Columns [begin, end) of one outer block: each element of dx has one thread, so repeated indices
/// add in order.
template <typename T, typename Index>
void scatter_add(const GatherBackwardArgs& args, std::int64_t outer, std::int64_t begin,
                 std::int64_t end) {
  const T* grad = static_cast<const T*>(args.grad) + outer * args.count * args.inner;
  const Index* index = static_cast<const Index*>(args.index);
  if (!args.shared_index) index += outer * args.count * args.inner;
  T* dx = static_cast<T*>(args.dx) + outer * args.axis * args.inner;
  for (std::int64_t a = 0; a < args.axis; ++a) {
    std::fill(dx + a * args.inner + begin, dx + a * args.inner + end, T{0});
  }
  for (std::int64_t j = 0; j < args.count; ++j) {
    const T* from = grad + j * args.inner;
    if (args.shared_index) {
      if (index[j] < 0 || index[j] >= args.axis) continue;
      T* to = dx + index[j] * args.inner;
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) to[i] += from[i];
      continue;
    }
    const Index* indices = index + j * args.inner;
    for (std::int64_t i = begin; i < end; ++i) {
      if (indices[i] < 0 || indices[i] >= args.axis) continue;
      dx[indices[i] * args.inner + i] += from[i];
    }
  }
}

template <typename T, typename Index>
void gather_backward_with(const GatherBackwardArgs& args) {
  const std::int64_t block = (args.axis + args.count) * args.inner;
  if (args.outer > 1) {
    parallel_for(args.outer, std::max<std::int64_t>(1, kCheapGrain / block),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t o = begin; o < end; ++o) {
                     scatter_add<T, Index>(args, o, 0, args.inner);
                   }
                 });
  } else {
    const std::int64_t column = args.axis + args.count;
    parallel_for(
        args.inner, std::max<std::int64_t>(16, kCheapGrain / column),
        [&](std::int64_t begin, std::int64_t end) { scatter_add<T, Index>(args, 0, begin, end); });
  }
}

template <typename T, typename Label>
void one_hot_with(const OneHotArgs& args) {
  const Label* labels = static_cast<const Label*>(args.labels);
  T* y = static_cast<T*>(args.y);
  std::fill_n(y, args.rows * args.classes, T{0});
  for (std::int64_t r = 0; r < args.rows; ++r) {
    if (labels[r] < 0 || labels[r] >= args.classes) continue;
    y[r * args.classes + labels[r]] = T{1};
  }
  report_first(labels, args.rows, args.classes, args.faults, args.site);
}

}  // namespace

void gather(const GatherArgs& args) {
  visit_all(args.dtype, "gather", [&]<typename T>() {
    visit_index(args.index_dtype, "gather", [&]<typename Index>() { gather_with<T, Index>(args); });
  });
}

void gather_backward(const GatherBackwardArgs& args) {
  visit_full_floating(args.dtype, "gather_backward", [&]<typename T>() {
    visit_index(args.index_dtype, "gather_backward",
                [&]<typename Index>() { gather_backward_with<T, Index>(args); });
  });
}

void one_hot(const OneHotArgs& args) {
  visit_all(args.dtype, "one_hot", [&]<typename T>() {
    visit_index(args.label_dtype, "one_hot",
                [&]<typename Label>() { one_hot_with<T, Label>(args); });
  });
}

}  // namespace capstan::cpu

#include <algorithm>
#include <type_traits>

#include "framework/core/dtype_visit.h"
#include "ops/cpu/loop.h"
#include "ops/cpu/row_sums.h"
#include "ops/kernels.h"

namespace capstan::cpu {
namespace {

constexpr std::int64_t kColumns = 128;     // accumulators of one block of columns
constexpr std::int64_t kMaxSections = 64;  // pieces of one long sum
constexpr std::int64_t kSection = 32768;

/// What a reduction does with one element, a dense row, and the end.
template <typename T>
struct Sum {
  using Element = T;
  using State = Accumulator<T>;
  double scale;
  static State start(T) { return 0; }
  static State add(State state, T x) { return state + static_cast<State>(x); }
  static State merge(State a, State b) { return a + b; }
  static State row(const T* x, std::int64_t count) { return row_sum(x, count); }
  T finish(State state) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(state);
    } else {
      return static_cast<T>(state * scale);
    }
  }
};

template <typename T, typename Choose>
struct Best {
  using Element = T;
  using State = T;
  static T start(T first) { return first; }
  static T add(T state, T x) { return Choose{}(state, x); }
  static T merge(T a, T b) { return Choose{}(a, b); }
  static T row(const T* x, std::int64_t count) { return row_best(x, count, Choose{}); }
  T finish(T state) const { return state; }
};

/// Offsets of a nest in its row-major order, without the innermost `skip` axes.
class Odometer {
 public:
  Odometer(const LoopNest& loop, const std::int64_t* strides, int skip)
      : loop_(loop), strides_(strides), last_(loop.rank - 1 - skip) {}

  void seek(std::int64_t position) {
    offset_ = 0;
    for (int axis = last_; axis >= 0; --axis) {
      index_[axis] = position % loop_.sizes[axis];
      position /= loop_.sizes[axis];
      offset_ += index_[axis] * strides_[axis];
    }
  }
  void next() {
    for (int axis = last_; axis >= 0; --axis) {
      offset_ += strides_[axis];
      if (++index_[axis] < loop_.sizes[axis]) return;
      offset_ -= index_[axis] * strides_[axis];
      index_[axis] = 0;
    }
  }
  [[nodiscard]] std::int64_t offset() const { return offset_; }

 private:
  const LoopNest& loop_;
  const std::int64_t* strides_;
  int last_;
  std::int64_t index_[kMaxRank] = {};
  std::int64_t offset_ = 0;
};

/// Over all of `inner` from `x` on.
template <typename Rule>
typename Rule::State reduce_nest(const typename Rule::Element* x, const LoopNest& inner,
                                 const std::int64_t* strides) {
  const std::int64_t length = inner.sizes[inner.rank - 1];
  const std::int64_t step = strides[inner.rank - 1];
  const std::int64_t rows = inner.numel / length;
  typename Rule::State state = Rule::start(x[0]);
  Odometer row(inner, strides, 1);
  row.seek(0);
  for (std::int64_t r = 0; r < rows; ++r, row.next()) {
    const auto* from = x + row.offset();
    if (step == 1) {
      state = Rule::merge(state, Rule::row(from, length));
    } else {
      for (std::int64_t i = 0; i < length; ++i) state = Rule::add(state, from[i * step]);
    }
  }
  return state;
}

/// One long dense row: sections whose size depends on the length alone, side by side.
template <typename Rule>
typename Rule::State reduce_long_row(const typename Rule::Element* x, std::int64_t count) {
  const std::int64_t section = std::max(kSection, (count + kMaxSections - 1) / kMaxSections);
  const std::int64_t sections = (count + section - 1) / section;
  typename Rule::State states[kMaxSections];
  parallel_for(sections, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t s = begin; s < end; ++s) {
      states[s] = Rule::row(x + s * section, std::min(section, count - s * section));
    }
  });
  typename Rule::State state = states[0];
  for (std::int64_t s = 1; s < sections; ++s) state = Rule::merge(state, states[s]);
  return state;
}

/// Outputs lie side by side in x: a block of them is accumulated row after row.
template <typename Rule>
void reduce_columns(const ReduceArgs& args, const Rule& rule) {
  using T = typename Rule::Element;
  const T* x = static_cast<const T*>(args.x);
  T* y = static_cast<T*>(args.y);
  const std::int64_t columns = args.outer.numel;
  const std::int64_t blocks = (columns + kColumns - 1) / kColumns;
  const std::int64_t block_cost = args.inner.numel * std::min(columns, kColumns);
  parallel_for(blocks, std::max<std::int64_t>(1, kCheapGrain / block_cost),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t block = begin; block < end; ++block) {
                   const std::int64_t first = block * kColumns;
                   const std::int64_t width = std::min(kColumns, columns - first);
                   typename Rule::State states[kColumns];
                   for (std::int64_t c = 0; c < width; ++c) states[c] = Rule::start(x[first + c]);
                   Odometer row(args.inner, args.x_inner_strides, 0);
                   row.seek(0);
                   for (std::int64_t r = 0; r < args.inner.numel; ++r, row.next()) {
                     const T* from = x + first + row.offset();
                     if (width == kColumns) {
                       for (std::int64_t c = 0; c < kColumns; ++c)
                         states[c] = Rule::add(states[c], from[c]);
                     } else {
                       for (std::int64_t c = 0; c < width; ++c)
                         states[c] = Rule::add(states[c], from[c]);
                     }
                   }
                   for (std::int64_t c = 0; c < width; ++c) y[first + c] = rule.finish(states[c]);
                 }
               });
}

template <typename Rule>
void reduce_with(const ReduceArgs& args, const Rule& rule) {
  using T = typename Rule::Element;
  const T* x = static_cast<const T*>(args.x);
  T* y = static_cast<T*>(args.y);
  if (args.inner.contiguous && args.outer.numel == 1 && args.inner.numel >= 2 * kSection) {
    y[0] = rule.finish(reduce_long_row<Rule>(x, args.inner.numel));
    return;
  }
  const bool one = args.inner.numel == 1;
  if (args.outer.contiguous && args.outer.numel > 1 && (one || !args.inner.contiguous)) {
    return reduce_columns(args, rule);
  }
  const std::int64_t grain = std::max<std::int64_t>(1, kCheapGrain / args.inner.numel);
  parallel_for(args.outer.numel, grain, [&](std::int64_t begin, std::int64_t end) {
    Odometer output(args.outer, args.x_outer_strides, 0);
    output.seek(begin);
    for (std::int64_t o = begin; o < end; ++o, output.next()) {
      y[o] = rule.finish(reduce_nest<Rule>(x + output.offset(), args.inner, args.x_inner_strides));
    }
  });
}

template <typename T>
void choose_largest(const ArgmaxArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  const std::int64_t grain = std::max<std::int64_t>(1, kCheapGrain / args.count);
  parallel_for(args.outer.numel, grain, [&](std::int64_t begin, std::int64_t end) {
    Odometer output(args.outer, args.x_outer_strides, 0);
    output.seek(begin);
    for (std::int64_t o = begin; o < end; ++o, output.next()) {
      const T* from = x + output.offset();
      T best = from[0];
      std::int64_t place = 0;
      for (std::int64_t i = 1; i < args.count; ++i) {
        const T value = from[i * args.inner_stride];
        // NaN is larger than every number, and the first one stays.
        if (value > best || (value != value && best == best)) {
          best = value;
          place = i;
        }
      }
      args.y[o] = place;
    }
  });
}

}  // namespace

void reduce(const ReduceArgs& args) {
  visit_numeric(args.dtype, "reduce", [&]<typename T>() {
    switch (args.op) {
      case ReduceOp::sum: return reduce_with(args, Sum<T>{1.0});
      case ReduceOp::mean:
        return reduce_with(args, Sum<T>{1.0 / static_cast<double>(args.inner.numel)});
      case ReduceOp::max: return reduce_with(args, Best<T, Larger>{});
      case ReduceOp::min: return reduce_with(args, Best<T, Smaller>{});
    }
  });
}

void argmax(const ArgmaxArgs& args) {
  visit_numeric(args.dtype, "argmax", [&]<typename T>() { choose_largest<T>(args); });
}

}  // namespace capstan::cpu

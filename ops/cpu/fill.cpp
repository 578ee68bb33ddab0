#include <algorithm>
#include <type_traits>

#include "framework/core/dtype_visit.h"
#include "ops/cpu/loop.h"
#include "ops/kernels.h"

namespace capstan::cpu {

void where(const WhereArgs& args) {
  visit_all(args.dtype, "where", [&]<typename T>() {
    const int last = args.loop.rank - 1;
    const std::int64_t condition_step = args.condition.strides[last];
    const std::int64_t a_step = args.a.strides[last];
    const std::int64_t b_step = args.b.strides[last];
    const std::int64_t y_step = args.y.strides[last];
    for_each_row<4>(
        args.loop, {args.condition.strides, args.a.strides, args.b.strides, args.y.strides},
        kCheapGrain, [&](const std::array<std::int64_t, 4>& at, std::int64_t count) {
          const bool* condition = static_cast<const bool*>(args.condition.data) + at[0];
          const T* a = static_cast<const T*>(args.a.data) + at[1];
          const T* b = static_cast<const T*>(args.b.data) + at[2];
          T* y = static_cast<T*>(args.y.data) + at[3];
          if (args.loop.contiguous) {
#pragma GCC ivdep
            for (std::int64_t i = 0; i < count; ++i) {
              const T if_true = a[i];
              const T if_false = b[i];
              y[i] = condition[i] ? if_true : if_false;
            }
          } else {
            for (std::int64_t i = 0; i < count; ++i) {
              y[i * y_step] = condition[i * condition_step] ? a[i * a_step] : b[i * b_step];
            }
          }
        });
  });
}

void fill(const FillArgs& args) {
  visit_all(args.dtype, "fill", [&]<typename T>() {
    T value{};
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(args.int_value);
    } else {
      value = static_cast<T>(args.value);
    }
    const std::int64_t step = args.y.strides[args.loop.rank - 1];
    for_each_row<1>(args.loop, {args.y.strides}, kCheapGrain,
                    [&](const std::array<std::int64_t, 1>& at, std::int64_t count) {
                      T* y = static_cast<T*>(args.y.data) + at[0];
                      if (step == 1) {
                        std::fill_n(y, count, value);
                      } else {
                        for (std::int64_t i = 0; i < count; ++i) y[i * step] = value;
                      }
                    });
  });
}

void arange(const ArangeArgs& args) {
  visit_numeric(args.dtype, "arange", [&]<typename T>() {
    T* y = static_cast<T*>(args.y);
    parallel_for(args.numel, kCheapGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        y[i] = static_cast<T>(args.start + static_cast<double>(i) * args.step);
      }
    });
  });
}

}  // namespace capstan::cpu

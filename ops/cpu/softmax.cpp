#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/core/dtype_visit.h"
#include "framework/runtime/parallel.h"
#include "ops/cpu/row_sums.h"
#include "ops/cpu/vector_math.h"
#include "ops/kernels.h"

namespace capstan::cpu {
namespace {

/// Rows that pay for another thread.
std::int64_t row_grain(std::int64_t cols) { return std::max<std::int64_t>(1, 4096 / cols); }

template <typename T>
T finite_maximum(const T* x, std::int64_t cols) {
  const T top = row_maximum(x, cols);
  // A row of -inf alone would give exp(-inf - -inf).
  return std::isinf(top) && top < 0 ? T{0} : top;
}

/// Sum of exp(x[c] - top). The order of the additions depends on the length alone.
template <typename T>
double exp_sum(const T* x, Compute<T> top, std::int64_t cols) {
  double sum = 0.0;
  alignas(64) Compute<T> shifted[kBlock];
  alignas(64) Compute<T> y[kBlock];
  for (std::int64_t first = 0; first < cols; first += kBlock) {
    const std::int64_t n = std::min(kBlock, cols - first);
    for (std::int64_t c = 0; c < n; ++c) shifted[c] = x[first + c] - top;
    evaluate_block<Exp>(shifted, n, y);
    sum += row_sum(y, n);
  }
  return sum;
}

template <typename T>
void softmax_row(const T* x, T* y, std::int64_t cols) {
  using C = Compute<T>;
  const C top = row_maximum(x, cols);
  const auto shifted = [=](std::int64_t c) { return x[c] - top; };
  if constexpr (is_half_type<T>) {
    // y cannot keep the exponentials: they would be rounded twice.
    const C scale = static_cast<C>(1.0 / exp_sum(x, top, cols));
    evaluate<Exp, C>(cols, shifted, [=](std::int64_t c, C e) { y[c] = static_cast<T>(e * scale); });
  } else {
    evaluate<Exp, T>(cols, shifted, [=](std::int64_t c, T e) { y[c] = e; });
    const T scale = static_cast<T>(1.0 / row_sum(y, cols));
#pragma GCC ivdep
    for (std::int64_t c = 0; c < cols; ++c) y[c] *= scale;
  }
}

template <typename T>
void log_softmax_row(const T* x, T* y, std::int64_t cols) {
  using C = Compute<T>;
  const C top = row_maximum(x, cols);
  const C shift = static_cast<C>(std::log(exp_sum(x, top, cols)));
#pragma GCC ivdep
  for (std::int64_t c = 0; c < cols; ++c) y[c] = static_cast<T>((x[c] - top) - shift);
}

template <typename T>
void forward(const SoftmaxArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  T* y = static_cast<T*>(args.y);
  parallel_for(args.rows, row_grain(args.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      if (args.log) {
        log_softmax_row(x + r * args.cols, y + r * args.cols, args.cols);
      } else {
        softmax_row(x + r * args.cols, y + r * args.cols, args.cols);
      }
    }
  });
}

template <typename T>
void backward(const SoftmaxBackwardArgs& args) {
  using C = Compute<T>;
  const std::int64_t cols = args.cols;
  parallel_for(args.rows, row_grain(cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* g = static_cast<const T*>(args.grad) + r * cols;
      const T* y = static_cast<const T*>(args.y) + r * cols;
      T* dx = static_cast<T*>(args.dx) + r * cols;
      if (args.log) {
        const C sum = static_cast<C>(row_sum(g, cols));
        evaluate<Exp, C>(
            cols, [=](std::int64_t c) { return y[c]; },
            [=](std::int64_t c, C e) { dx[c] = static_cast<T>(g[c] - e * sum); });
      } else {
        const C sum = static_cast<C>(row_sum_of(cols, [=](std::int64_t c) { return g[c] * y[c]; }));
#pragma GCC ivdep
        for (std::int64_t c = 0; c < cols; ++c) dx[c] = static_cast<T>(y[c] * (g[c] - sum));
      }
    }
  });
}

template <typename T, typename Label>
void cross_entropy_rows(const CrossEntropyArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  const Label* labels = static_cast<const Label*>(args.labels);
  T* loss = static_cast<T*>(args.loss);
  T* logsumexp = static_cast<T*>(args.logsumexp);
  const std::int64_t cols = args.cols;
  parallel_for(args.rows, row_grain(cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* row = x + r * cols;
      const T top = finite_maximum(row, cols);
      logsumexp[r] = static_cast<T>(static_cast<double>(top) + std::log(exp_sum(row, top, cols)));
      const bool valid = labels[r] >= 0 && labels[r] < cols;
      loss[r] = valid ? logsumexp[r] - row[labels[r]] : T{0};
    }
  });
  double total = 0.0;
  for (std::int64_t r = 0; r < args.rows; ++r) {
    if (labels[r] < 0 || labels[r] >= cols) {
      report_fault(args.faults, args.site, r, labels[r], cols);
    }
    total += static_cast<double>(loss[r]);
  }
  if (args.reduced != nullptr) *static_cast<T*>(args.reduced) = static_cast<T>(args.scale * total);
}

template <typename T, typename Label>
void cross_entropy_rows_backward(const CrossEntropyBackwardArgs& args) {
  const T* grad = static_cast<const T*>(args.grad);
  const T* x = static_cast<const T*>(args.x);
  const Label* labels = static_cast<const Label*>(args.labels);
  const T* logsumexp = static_cast<const T*>(args.logsumexp);
  T* dx = static_cast<T*>(args.dx);
  const T scale = static_cast<T>(args.scale);
  const std::int64_t cols = args.cols;
  parallel_for(args.rows, row_grain(cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* row = x + r * cols;
      T* out = dx + r * cols;
      if (labels[r] < 0 || labels[r] >= cols) {
        std::fill_n(out, cols, T{0});
        continue;
      }
      const T g = scale * grad[args.grad_is_scalar ? 0 : r];
      const T shift = logsumexp[r];
      evaluate<Exp, T>(
          cols, [=](std::int64_t c) { return row[c] - shift; },
          [=](std::int64_t c, T e) { out[c] = g * e; });
      out[labels[r]] -= g;
    }
  });
}

}  // namespace

void softmax(const SoftmaxArgs& args) {
  visit_floating(args.dtype, "softmax", [&]<typename T>() { forward<T>(args); });
}

void softmax_backward(const SoftmaxBackwardArgs& args) {
  visit_floating(args.dtype, "softmax_backward", [&]<typename T>() { backward<T>(args); });
}

void cross_entropy(const CrossEntropyArgs& args) {
  visit_full_floating(args.dtype, "cross_entropy", [&]<typename T>() {
    visit_index(args.label_dtype, "cross_entropy",
                [&]<typename Label>() { cross_entropy_rows<T, Label>(args); });
  });
}

void cross_entropy_backward(const CrossEntropyBackwardArgs& args) {
  visit_full_floating(args.dtype, "cross_entropy_backward", [&]<typename T>() {
    visit_index(args.label_dtype, "cross_entropy_backward",
                [&]<typename Label>() { cross_entropy_rows_backward<T, Label>(args); });
  });
}

}  // namespace capstan::cpu

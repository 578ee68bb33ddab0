// Matrix products of Eigen, on blocks of C that our own threads share.

#include <algorithm>

#include "framework/core/dtype_visit.h"
#include "framework/runtime/parallel.h"
#include "ops/cpu/eigen.h"
#include "ops/cpu/matmul_half.h"
#include "ops/kernels.h"

namespace capstan::cpu {
namespace {

template <typename T, int kOrder>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, kOrder>;

/// A matrix in memory.
template <typename M>
using View = Eigen::Map<M, Eigen::Unaligned, Eigen::OuterStride<>>;

template <typename T>
struct Product {
  const T* a;
  const T* b;
  T* c;
  const MatmulArgs* args;
};

/// Rows or columns [begin, end).
struct Range {
  std::int64_t begin, end;
};

// Blocks of C are whole multiples of the tiles of Eigen's kernels on any processor. How an element
// is summed then does not depend on the blocks.
constexpr std::int64_t kUnit = 48;
// Eigen's copy of a block of this many columns of B fits EIGEN_STACK_ALLOCATION_LIMIT, and so do
// its copies of vectors.
constexpr std::int64_t kBlockCols = 6 * kUnit;
constexpr std::int64_t kBlockRows = 1024 * kUnit;
constexpr std::int64_t kBlockDepth = 1 << 18;

/// Calls `body(from, count)` for blocks of `range`; a last one of less than a unit, which Eigen may
/// compute in another way, joins the one before it.
template <typename Body>
void for_each_block(Range range, std::int64_t block, const Body& body) {
  for (std::int64_t from = range.begin; from < range.end;) {
    const std::int64_t left = range.end - from;
    const std::int64_t count = left < block + kUnit ? left : block;
    body(from, count);
    from += count;
  }
}

/// C += A B
template <typename T, int kOrderA, int kOrderB>
void add_product(const Product<T>& p, Range rows, Range cols) {
  const MatmulArgs& args = *p.args;
  const View<const Matrix<T, kOrderA>> a(p.a, args.m, args.k, Eigen::OuterStride<>(args.lda));
  const View<const Matrix<T, kOrderB>> b(p.b, args.k, args.n, Eigen::OuterStride<>(args.ldb));
  View<Matrix<T, Eigen::RowMajor>> c(p.c, args.m, args.n, Eigen::OuterStride<>(args.ldc));
  for_each_block(rows, kBlockRows, [&](std::int64_t row, std::int64_t row_count) {
    for_each_block(cols, kBlockCols, [&](std::int64_t col, std::int64_t col_count) {
      for_each_block({0, args.k}, kBlockDepth, [&](std::int64_t k, std::int64_t depth) {
        c.block(row, col, row_count, col_count).noalias() +=
            a.block(row, k, row_count, depth) * b.block(k, col, depth, col_count);
      });
    });
  });
}

/// Rows and columns of C, on this thread.
template <typename T>
void multiply(const Product<T>& p, Range rows, Range cols) {
  const MatmulArgs& args = *p.args;
  const T* bias = static_cast<const T*>(args.bias);
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    T* c = p.c + r * args.ldc;
    if (args.beta == 0.0) {
      if (bias != nullptr) {
        std::copy(bias + cols.begin, bias + cols.end, c + cols.begin);
      } else {
        std::fill(c + cols.begin, c + cols.end, T{0});
      }
    } else if (bias != nullptr) {
      for (std::int64_t j = cols.begin; j < cols.end; ++j) c[j] += bias[j];
    }
  }
  constexpr int kRowMajor = Eigen::RowMajor;
  constexpr int kColMajor = Eigen::ColMajor;
  if (args.transpose_a) {
    if (args.transpose_b) return add_product<T, kColMajor, kColMajor>(p, rows, cols);
    return add_product<T, kColMajor, kRowMajor>(p, rows, cols);
  }
  if (args.transpose_b) return add_product<T, kRowMajor, kColMajor>(p, rows, cols);
  add_product<T, kRowMajor, kRowMajor>(p, rows, cols);
}

// Multiplications that pay for waking another thread, about 10 us.
constexpr std::int64_t kWorthAThread = 500000;

/// Splits the longer side of C.
template <typename T>
void multiply_on_threads(const Product<T>& p) {
  const MatmulArgs& args = *p.args;
  const bool by_rows = args.m > args.n;
  const std::int64_t length = by_rows ? args.m : args.n;
  const std::int64_t units = std::max<std::int64_t>(1, length / kUnit);
  const std::int64_t unit_work = kUnit * (by_rows ? args.n : args.m) * args.k;
  parallel_for(units, std::max<std::int64_t>(1, kWorthAThread / unit_work),
               [&](std::int64_t begin, std::int64_t end) {
                 const Range part{begin * kUnit, end == units ? length : end * kUnit};
                 multiply(p, by_rows ? part : Range{0, args.m}, by_rows ? Range{0, args.n} : part);
               });
}

template <typename T>
Product<T> product_of(const MatmulArgs& args, std::int64_t index) {
  return {static_cast<const T*>(args.a) + index * args.a_batch_stride,
          static_cast<const T*>(args.b) + index * args.b_batch_stride,
          static_cast<T*>(args.c) + index * args.c_batch_stride, &args};
}

template <typename T>
void multiply_batch(const MatmulArgs& args) {
  const std::int64_t work = args.m * args.n * args.k;
  if (args.batch == 1 || work > 4 * kWorthAThread) {
    for (std::int64_t i = 0; i < args.batch; ++i) multiply_on_threads(product_of<T>(args, i));
    return;
  }
  parallel_for(args.batch, std::max<std::int64_t>(1, kWorthAThread / work),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   multiply(product_of<T>(args, i), {0, args.m}, {0, args.n});
                 }
               });
}

}  // namespace

void matmul(const MatmulArgs& args) {
  if (is_half(args.dtype)) return matmul_half(args);
  visit_full_floating(args.dtype, "matmul", [&]<typename T>() { multiply_batch<T>(args); });
}

}  // namespace capstan::cpu

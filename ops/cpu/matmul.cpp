// Matrix products after Goto and van de Geijn ("Anatomy of high-performance matrix multiplication",
// 2008): operands are copied to small dense blocks that stay in the cache, and a tile of C is
// accumulated in registers. Blocks live on the stack, so a product allocates nothing.

#include <algorithm>

#include "framework/core/dtype_visit.h"
#include "framework/runtime/parallel.h"
#include "ops/cpu/matmul_tile.h"
#include "ops/kernels.h"

namespace capstan::cpu {
namespace {

/// A matrix in memory, perhaps stored transposed.
template <typename T>
struct Source {
  const T* data;
  std::int64_t leading;
  bool transposed;

  [[nodiscard]] const T* at(std::int64_t row, std::int64_t col) const {
    return transposed ? data + col * leading + row : data + row * leading + col;
  }
};

/// Copies rows x cols of `source` from (row, col) on to dense rows, `stride` apart.
template <typename T>
void pack(const Source<T>& source, std::int64_t row, std::int64_t col, std::int64_t rows,
          std::int64_t cols, T* to, std::int64_t stride) {
  const T* from = source.at(row, col);
  if (!source.transposed) {
    for (std::int64_t r = 0; r < rows; ++r) {
      std::copy_n(from + r * source.leading, cols, to + r * stride);
    }
    return;
  }
  constexpr std::int64_t kLanes = kVectorLanes<T>;
  const std::int64_t square_rows = rows / kLanes * kLanes;
  const std::int64_t square_cols = cols / kLanes * kLanes;
  for (std::int64_t c = 0; c < square_cols; c += kLanes) {
    for (std::int64_t r = 0; r < square_rows; r += kLanes) {
      transpose_square(from + c * source.leading + r, source.leading, to + r * stride + c, stride);
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t first = r < square_rows ? square_cols : 0;
    for (std::int64_t c = first; c < cols; ++c) to[r * stride + c] = from[c * source.leading + r];
  }
}

/// Rows of A against stored rows of a transposed B: dot products, with nothing copied.
template <typename T>
void multiply_dots(std::int64_t rows, std::int64_t cols, const T* a, const T* b,
                   std::int64_t b_leading, std::int64_t depth, const Target<T>& target) {
  constexpr std::int64_t kLanes = kVectorLanes<T>;
  for (std::int64_t j = 0; j < cols; ++j) {
    const T* right = b + j * b_leading;
    for (std::int64_t i = 0; i < rows; ++i) {
      const T* left = a + i * Blocking<T>::kStride;
      Vector<T> sums[4] = {};
      std::int64_t k = 0;
      for (; k + 4 * kLanes <= depth; k += 4 * kLanes) {
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) {
          sums[v] += load(left + k + v * kLanes) * load(right + k + v * kLanes);
        }
      }
      for (; k + kLanes <= depth; k += kLanes) sums[0] += load(left + k) * load(right + k);
      const Vector<T> folded = (sums[0] + sums[1]) + (sums[2] + sums[3]);
      T sum = 0;
      for (std::int64_t lane = 0; lane < kLanes; ++lane) sum += folded[lane];
      for (; k < depth; ++k) sum += left[k] * right[k];
      if (target.bias != nullptr) sum += target.bias[j];
      T& to = target.c[i * target.leading + j];
      to = target.accumulate ? to + sum : sum;
    }
  }
}

template <typename T>
struct Product {
  Source<T> a;
  Source<T> b;
  T* c;
  const T* bias;
  std::int64_t m, n, k, ldc;
  bool accumulate;
};

template <typename T>
Target<T> target_at(const Product<T>& p, std::int64_t row, std::int64_t col, std::int64_t k) {
  const bool first = k == 0;
  return {p.c + row * p.ldc + col, p.ldc, p.bias != nullptr && first ? p.bias + col : nullptr,
          p.accumulate || !first};
}

// Up to this many rows, copying a transposed B costs more than it saves.
constexpr std::int64_t kDotRows = 4;

/// Rows [row, row_end) and columns [col, col_end) of C, on this thread.
template <typename T>
void multiply(const Product<T>& p, std::int64_t row, std::int64_t row_end, std::int64_t col,
              std::int64_t col_end) {
  using Block = Blocking<T>;
  alignas(64) T a[(Block::kRows + kTileRows) * Block::kStride];
  alignas(64) T b[Block::kDepth * Block::kTileCols];
  // Equal steps: no thin rest.
  const std::int64_t depth_steps = (p.k + Block::kDepth - 1) / Block::kDepth;
  const std::int64_t depth_step = (p.k + depth_steps - 1) / depth_steps;
  for (std::int64_t k = 0; k < p.k; k += depth_step) {
    const std::int64_t depth = std::min(depth_step, p.k - k);
    for (std::int64_t i = row; i < row_end; i += Block::kRows) {
      const std::int64_t rows = std::min(Block::kRows, row_end - i);
      pack(p.a, i, k, rows, depth, a, Block::kStride);
      if (p.m <= kDotRows && p.b.transposed) {
        multiply_dots(rows, col_end - col, a, p.b.at(k, col), p.b.leading, depth,
                      target_at(p, i, col, k));
        continue;
      }
      for (std::int64_t j = col; j < col_end; j += Block::kTileCols) {
        const std::int64_t cols = std::min(Block::kTileCols, col_end - j);
        const Target<T> target = target_at(p, i, j, k);
        if (cols <= kVectorLanes<T>) {
          pack(p.b, k, j, depth, cols, b, kVectorLanes<T>);
          multiply_panel<T, 1>(rows, cols, a, {b, kVectorLanes<T>, depth}, target);
        } else if (rows <= kTileRows && cols == Block::kTileCols && !p.b.transposed) {
          // Used once: copying would not pay.
          multiply_panel<T, kTileVectors>(rows, cols, a, {p.b.at(k, j), p.b.leading, depth},
                                          target);
        } else {
          pack(p.b, k, j, depth, cols, b, Block::kTileCols);
          multiply_panel<T, kTileVectors>(rows, cols, a, {b, Block::kTileCols, depth}, target);
        }
      }
    }
  }
}

// Multiplications that pay for waking another thread, about 10 us.
constexpr std::int64_t kWorthAThread = 500000;

/// Splits the longer side of C, in whole tiles.
template <typename T>
void multiply_on_threads(const Product<T>& p) {
  const bool by_rows = p.m > p.n;
  const std::int64_t unit = by_rows ? kTileRows : Blocking<T>::kTileCols;
  const std::int64_t length = by_rows ? p.m : p.n;
  const std::int64_t unit_work = unit * (by_rows ? p.n : p.m) * p.k;
  parallel_for((length + unit - 1) / unit, std::max<std::int64_t>(1, kWorthAThread / unit_work),
               [&](std::int64_t begin, std::int64_t end) {
                 const std::int64_t first = begin * unit;
                 const std::int64_t last = std::min(length, end * unit);
                 if (by_rows) {
                   multiply(p, first, last, 0, p.n);
                 } else {
                   multiply(p, 0, p.m, first, last);
                 }
               });
}

template <typename T>
Product<T> product_of(const MatmulArgs& args, std::int64_t index) {
  return {{static_cast<const T*>(args.a) + index * args.a_batch_stride, args.lda, args.transpose_a},
          {static_cast<const T*>(args.b) + index * args.b_batch_stride, args.ldb, args.transpose_b},
          static_cast<T*>(args.c) + index * args.c_batch_stride,
          static_cast<const T*>(args.bias),
          args.m,
          args.n,
          args.k,
          args.ldc,
          args.beta != 0.0};
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
                   multiply(product_of<T>(args, i), 0, args.m, 0, args.n);
                 }
               });
}

}  // namespace

void matmul(const MatmulArgs& args) {
  visit_floating(args.dtype, "matmul", [&]<typename T>() { multiply_batch<T>(args); });
}

}  // namespace capstan::cpu

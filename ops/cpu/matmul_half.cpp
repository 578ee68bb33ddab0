// Products of 16-bit matrices: panels of both operands become float on the stack, Eigen multiplies
// them, and a block of C is rounded once, after its last panel.

#include "ops/cpu/matmul_half.h"

#include <algorithm>

#include "framework/runtime/parallel.h"
#include "ops/cpu/eigen.h"

namespace capstan::cpu {
namespace {

// Multiples of the tiles of Eigen's kernels on any processor; three blocks are 390 KiB of stack.
constexpr std::int64_t kRows = 96;
constexpr std::int64_t kCols = 192;
constexpr std::int64_t kDepth = 256;

using Block = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using BlockMap = Eigen::Map<Block, Eigen::Aligned64>;

/// Elements [row, row + rows) x [col, col + cols) of a matrix, or of its transpose, row-major.
template <typename T>
void widen(const T* matrix, std::int64_t leading, bool transposed, std::int64_t row,
           std::int64_t rows, std::int64_t col, std::int64_t cols, float* to) {
  if (transposed) {
    for (std::int64_t j = 0; j < cols; ++j) {
      const T* from = matrix + (col + j) * leading + row;
      for (std::int64_t i = 0; i < rows; ++i) to[i * cols + j] = from[i];
    }
    return;
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* from = matrix + (row + i) * leading + col;
    for (std::int64_t j = 0; j < cols; ++j) to[i * cols + j] = from[j];
  }
}

/// The block of one C that begins at (row, col).
template <typename T>
void multiply_block(const MatmulArgs& args, const T* a, const T* b, T* c, std::int64_t row,
                    std::int64_t col) {
  alignas(64) float left[kRows * kDepth];
  alignas(64) float right[kDepth * kCols];
  alignas(64) float sums[kRows * kCols];
  const std::int64_t rows = std::min(kRows, args.m - row);
  const std::int64_t cols = std::min(kCols, args.n - col);
  BlockMap sum(sums, rows, cols);
  sum.setZero();
  for (std::int64_t k = 0; k < args.k; k += kDepth) {
    const std::int64_t depth = std::min(kDepth, args.k - k);
    widen(a, args.lda, args.transpose_a, row, rows, k, depth, left);
    widen(b, args.ldb, args.transpose_b, k, depth, col, cols, right);
    sum.noalias() += BlockMap(left, rows, depth) * BlockMap(right, depth, cols);
  }
  const T* bias = static_cast<const T*>(args.bias);
  for (std::int64_t i = 0; i < rows; ++i) {
    T* to = c + (row + i) * args.ldc + col;
    for (std::int64_t j = 0; j < cols; ++j) {
      float value = sums[i * cols + j];
      if (args.beta != 0.0) value += to[j];
      if (bias != nullptr) value += bias[col + j];
      to[j] = static_cast<T>(value);
    }
  }
}

template <typename T>
void multiply(const MatmulArgs& args) {
  const std::int64_t across = (args.n + kCols - 1) / kCols;
  const std::int64_t blocks = (args.m + kRows - 1) / kRows * across;
  const std::int64_t work = std::min(args.m, kRows) * std::min(args.n, kCols) * args.k;
  // Multiplications that pay for waking another thread.
  const std::int64_t grain = std::max<std::int64_t>(1, 250000 / work);
  parallel_for(args.batch * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t matrix = i / blocks;
      const std::int64_t block = i % blocks;
      multiply_block(args, static_cast<const T*>(args.a) + matrix * args.a_batch_stride,
                     static_cast<const T*>(args.b) + matrix * args.b_batch_stride,
                     static_cast<T*>(args.c) + matrix * args.c_batch_stride, block / across * kRows,
                     block % across * kCols);
    }
  });
}

}  // namespace

void matmul_half(const MatmulArgs& args) {
  if (args.dtype == DType::float16) return multiply<Float16>(args);
  multiply<BFloat16>(args);
}

}  // namespace capstan::cpu

#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/cpu/vector.h"

// The innermost part of a matrix product: a tile of C in registers.
namespace capstan::cpu {

// A tile of C is at most kTileRows rows by kTileVectors vectors; with two vectors of B and one
// repeated element of A, all of it fits the registers.
constexpr int kTileRows = kVectorRegisters == 32 ? 12 : 4;
constexpr int kTileVectors = 2;

template <typename T>
struct Blocking {
  static constexpr std::int64_t kTileCols = kTileVectors * kVectorLanes<T>;
  static constexpr std::int64_t kRows = 288;
  static constexpr std::int64_t kDepth = 1600 / static_cast<std::int64_t>(sizeof(T));
  // One cache line more than the depth: rows of a block then fall into different cache sets.
  static constexpr std::int64_t kStride = kDepth + 64 / static_cast<std::int64_t>(sizeof(T));
};

/// Where a tile goes and what is added to it.
template <typename T>
struct Target {
  T* c;
  std::int64_t leading;
  const T* bias;    // for the columns of the tile, or null
  bool accumulate;  // add to what C holds
};

/// A panel of B: `depth` rows, `stride` apart.
template <typename T>
struct Panel {
  const T* data;
  std::int64_t stride;
  std::int64_t depth;
};

/// kRows x kVectors vectors of C from a block of A, whose rows are kStride apart, and a panel of B.
template <typename T, int kRows, int kVectors>
[[gnu::always_inline]] inline void tile(const T* a, const Panel<T>& b, const Target<T>& target) {
  constexpr std::int64_t kStride = Blocking<T>::kStride;
  constexpr std::int64_t kLanes = kVectorLanes<T>;
  Vector<T> sums[kRows][kVectors] = {};
  const T* b_row = b.data;
  for (std::int64_t k = 0; k < b.depth; ++k, b_row += b.stride) {
    Vector<T> row[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) row[v] = load(b_row + v * kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const T factor = a[i * kStride + k];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[i][v] += factor * row[v];
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      T* to = target.c + i * target.leading + v * kLanes;
      if (target.bias != nullptr) sums[i][v] += load(target.bias + v * kLanes);
      if (target.accumulate) sums[i][v] += load(to);
      store(to, sums[i][v]);
    }
  }
}

template <typename T, int kVectors>
void tile_of_height(int rows, const T* a, const Panel<T>& b, const Target<T>& target) {
  if constexpr (kTileRows == 12) {
    if (rows == 12) return tile<T, 12, kVectors>(a, b, target);
    if (rows == 8) return tile<T, 8, kVectors>(a, b, target);
  }
  tile<T, 4, kVectors>(a, b, target);
}

/// A tile that reaches over the edge of C goes through a buffer.
template <typename T, int kVectors>
void edge_tile(int tile_rows, std::int64_t rows, std::int64_t cols, const T* a, const Panel<T>& b,
               const Target<T>& target) {
  constexpr std::int64_t kCols = kVectors * kVectorLanes<T>;
  alignas(64) T buffer[kTileRows * kCols];
  tile_of_height<T, kVectors>(tile_rows, a, b, {buffer, kCols, nullptr, false});
  for (std::int64_t i = 0; i < rows; ++i) {
    T* to = target.c + i * target.leading;
    const T* from = buffer + i * kCols;
    for (std::int64_t j = 0; j < cols; ++j) {
      const T added = target.bias != nullptr ? from[j] + target.bias[j] : from[j];
      to[j] = target.accumulate ? to[j] + added : added;
    }
  }
}

/// All rows of C against one panel of B, of which `cols` columns count.
template <typename T, int kVectors>
void multiply_panel(std::int64_t rows, std::int64_t cols, const T* a, const Panel<T>& b,
                    Target<T> target) {
  for (std::int64_t i = 0; i < rows;) {
    const std::int64_t left = rows - i;
    const int tile_rows = static_cast<int>(std::min<std::int64_t>(kTileRows, (left + 3) / 4 * 4));
    const T* from = a + i * Blocking<T>::kStride;
    if (tile_rows <= left && cols == kVectors * kVectorLanes<T>) {
      tile_of_height<T, kVectors>(tile_rows, from, b, target);
    } else {
      edge_tile<T, kVectors>(tile_rows, std::min<std::int64_t>(left, tile_rows), cols, from, b,
                             target);
    }
    i += tile_rows;
    target.c += tile_rows * target.leading;
  }
}

}  // namespace capstan::cpu

#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

// The widest vectors of the processor that this is compiled for, in the compiler's own notation:
// arithmetic works on all lanes, and the same source serves every instruction set.
namespace capstan::cpu {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
inline constexpr int kVectorRegisters = 32;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
inline constexpr int kVectorRegisters = 16;
#else
inline constexpr int kVectorBytes = 16;
inline constexpr int kVectorRegisters = 16;
#endif

template <typename T>
inline constexpr int kVectorLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <typename T>
struct VectorOf {
  using Type [[gnu::vector_size(kVectorBytes)]] = T;
};
template <typename T>
using Vector = typename VectorOf<T>::Type;

template <typename T>
Vector<T> load(const T* from) {
  Vector<T> v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}

template <typename T>
void store(T* to, const Vector<T>& v) {
  std::memcpy(to, &v, sizeof(v));
}

namespace detail {

/// One step of a transpose: swaps the off-diagonal kStep x kStep blocks of two rows.
template <typename T, int kStep, int... kLane>
void swap_blocks(Vector<T>& upper, Vector<T>& lower, std::integer_sequence<int, kLane...>) {
  constexpr int kLanes = kVectorLanes<T>;
  const Vector<T> first = upper;
  upper = __builtin_shufflevector(first, lower,
                                  ((kLane & kStep) == 0 ? kLane : kLanes + kLane - kStep)...);
  lower = __builtin_shufflevector(first, lower,
                                  ((kLane & kStep) == 0 ? kLane + kStep : kLanes + kLane)...);
}

template <typename T, int kStep>
void transpose_steps(Vector<T> (&rows)[kVectorLanes<T>]) {
  constexpr int kLanes = kVectorLanes<T>;
  if constexpr (kStep < kLanes) {
#pragma GCC unroll 16
    for (int row = 0; row < kLanes; ++row) {
      if ((row & kStep) == 0) {
        swap_blocks<T, kStep>(rows[row], rows[row + kStep],
                              std::make_integer_sequence<int, kLanes>());
      }
    }
    transpose_steps<T, 2 * kStep>(rows);
  }
}

}  // namespace detail

/// to[c][r] = from[r][c] for a square of as many rows as a vector has lanes.
template <typename T>
void transpose_square(const T* from, std::int64_t from_stride, T* to, std::int64_t to_stride) {
  constexpr int kLanes = kVectorLanes<T>;
  Vector<T> rows[kLanes];
#pragma GCC unroll 16
  for (int row = 0; row < kLanes; ++row) rows[row] = load(from + row * from_stride);
  detail::transpose_steps<T, 1>(rows);
#pragma GCC unroll 16
  for (int row = 0; row < kLanes; ++row) store(to + row * to_stride, rows[row]);
}

}  // namespace capstan::cpu

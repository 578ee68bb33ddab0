#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>

#include "framework/core/half.h"

namespace capstan {

/// Element types. `boolean` is one byte, 0 or 1. `float16` and `bfloat16` are stored in 16 bits and
/// computed in float32, see half.h.
enum class DType : std::uint8_t {
  float32,
  float64,
  float16,
  bfloat16,
  int64,
  int32,
  uint8,
  boolean
};

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::float32: return 4;
    case DType::float64: return 8;
    case DType::float16: return 2;
    case DType::bfloat16: return 2;
    case DType::int64: return 8;
    case DType::int32: return 4;
    case DType::uint8: return 1;
    case DType::boolean: return 1;
  }
  return 0;
}

[[nodiscard]] constexpr const char* name_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::float32: return "float32";
    case DType::float64: return "float64";
    case DType::float16: return "float16";
    case DType::bfloat16: return "bfloat16";
    case DType::int64: return "int64";
    case DType::int32: return "int32";
    case DType::uint8: return "uint8";
    case DType::boolean: return "bool";
  }
  return "?";
}

[[nodiscard]] constexpr bool is_floating(DType dtype) noexcept { return dtype < DType::int64; }

/// float16 and bfloat16.
[[nodiscard]] constexpr bool is_half(DType dtype) noexcept {
  return dtype == DType::float16 || dtype == DType::bfloat16;
}

inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

/// The DType of a C++ type: `dtype_of<float>` is `DType::float32`.
template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::float32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::float64;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::float16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bfloat16;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::int64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::int32;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::uint8;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::boolean;
};
template <typename T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace capstan

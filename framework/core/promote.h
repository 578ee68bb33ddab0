#pragma once

#include <initializer_list>
#include <span>

#include "framework/core/dtype.h"

// The dtype in which operands of different dtypes meet; the rules are PyTorch's.
namespace capstan {

/// The smallest dtype that both convert to: bool < uint8 < int32 < int64 < float16, bfloat16 <
/// float32 < float64; float16 and bfloat16 meet in float32.
[[nodiscard]] constexpr DType promote_types(DType a, DType b) noexcept {
  if (a == b) return a;
  if (is_half(a) && is_half(b)) return DType::float32;
  const auto rank = [](DType dtype) {
    switch (dtype) {
      case DType::boolean: return 0;
      case DType::uint8: return 1;
      case DType::int32: return 2;
      case DType::int64: return 3;
      case DType::float16:
      case DType::bfloat16: return 4;
      case DType::float32: return 5;
      case DType::float64: return 6;
    }
    return 6;
  };
  return rank(a) > rank(b) ? a : b;
}

/// How much an operand has to say: a tensor with axes more than one without, that more than a
/// number.
enum class Weight : std::uint8_t { tensor, scalar_tensor, number };

/// Numbers are float32 or int64.
struct Participant {
  DType dtype;
  Weight weight;
};

/// The dtype of an elementwise result. A weaker operand decides only if its kind (bool, integer,
/// floating) is the higher one: an int32 tensor times a float64 tensor without axes is float64, a
/// float32 one stays float32. Without operands: bool.
[[nodiscard]] constexpr DType result_type(std::span<const Participant> operands) noexcept {
  constexpr int kWeights = 3;
  DType dtypes[kWeights] = {DType::boolean, DType::boolean, DType::boolean};
  bool present[kWeights] = {};
  for (const Participant& operand : operands) {
    const auto at = static_cast<std::size_t>(operand.weight);
    dtypes[at] = present[at] ? promote_types(dtypes[at], operand.dtype) : operand.dtype;
    present[at] = true;
  }
  const auto kind = [](DType dtype) {
    return is_floating(dtype) ? 2 : dtype == DType::boolean ? 0 : 1;
  };
  DType result = DType::boolean;
  bool decided = false;
  for (std::size_t i = 0; i < kWeights; ++i) {
    if (!present[i]) continue;
    if (!decided || kind(dtypes[i]) > kind(result)) {
      result = decided ? promote_types(result, dtypes[i]) : dtypes[i];
    }
    decided = true;
  }
  return result;
}

[[nodiscard]] constexpr DType result_type(std::initializer_list<Participant> operands) noexcept {
  return result_type(std::span(operands.begin(), operands.size()));
}

}  // namespace capstan

#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "framework/core/host_device.h"

// Floating-point numbers of 16 bits. They are for storage: arithmetic converts them to float, which
// holds every one of them exactly, and a result is rounded once, when it is stored.
namespace capstan {

namespace detail {

/// The float nearest to `value` in which a second rounding, to fewer bits, goes as it would from
/// `value` itself: what does not fit is cut off and leaves its mark in the last bit.
CAPSTAN_HOST_DEVICE constexpr float round_to_odd(double value) noexcept {
  const float nearest = static_cast<float>(value);
  const double back = static_cast<double>(nearest);
  if (back == value || value != value) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if ((back > value) == (value > 0.0)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1u);
}

/// IEEE 754 binary16: 5 bits of exponent, 10 of fraction.
struct Binary16 {
  CAPSTAN_HOST_DEVICE static constexpr std::uint16_t encode(float value) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = bits >> 16 & 0x8000u;
    const std::uint32_t size = bits & 0x7fffffffu;
    std::uint32_t result = 0;
    if (size >= 0x47800000u) {  // 2^16, infinity, NaN
      result = size > 0x7f800000u ? 0x7e00u : 0x7c00u;
    } else if (size < 0x38800000u) {
      // Below 2^-14 the distance of neighbours is 2^-24, and so it is for floats from 0.5 on.
      result = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000u;
    } else {
      result = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
    }
    return static_cast<std::uint16_t>(sign | result);
  }
  CAPSTAN_HOST_DEVICE static constexpr float decode(std::uint16_t bits) noexcept {
    const std::uint32_t size = (bits & 0x7fffu) << 13;
    const std::uint32_t sign = (bits & 0x8000u) << 16;
    // 2^112 corrects the exponent, also of the smallest numbers, which are not normalised.
    const float scaled = std::bit_cast<float>(size) * std::bit_cast<float>(0x77800000u);
    const std::uint32_t special = size >= 0x0f800000u ? 0x7f800000u : 0u;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
  }
};

/// The upper half of a float: 8 bits of exponent, 7 of fraction.
struct Brain16 {
  CAPSTAN_HOST_DEVICE static constexpr std::uint16_t encode(float value) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
    return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
  CAPSTAN_HOST_DEVICE static constexpr float decode(std::uint16_t bits) noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

/// Numbers round to the nearest value, of two equally near ones to the even one. NaN stays NaN.
template <typename Format>
class HalfFloat {
 public:
  HalfFloat() noexcept = default;
  CAPSTAN_HOST_DEVICE explicit constexpr HalfFloat(float value) noexcept
      : bits_(Format::encode(value)) {}
  template <typename Number>
  requires std::is_arithmetic_v<Number> CAPSTAN_HOST_DEVICE explicit constexpr HalfFloat(
      Number value) noexcept
      : bits_(Format::encode(round_to_odd(static_cast<double>(value)))) {}
  CAPSTAN_HOST_DEVICE static constexpr HalfFloat from_bits(std::uint16_t bits) noexcept {
    HalfFloat result{0.0f};
    result.bits_ = bits;
    return result;
  }
  [[nodiscard]] CAPSTAN_HOST_DEVICE constexpr std::uint16_t bits() const noexcept { return bits_; }
  CAPSTAN_HOST_DEVICE constexpr operator float() const noexcept { return Format::decode(bits_); }

 private:
  std::uint16_t bits_;
};

}  // namespace detail

using Float16 = detail::HalfFloat<detail::Binary16>;
using BFloat16 = detail::HalfFloat<detail::Brain16>;

template <typename T>
inline constexpr bool is_half_type = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

/// The type in which elements of type T are computed.
template <typename T>
using Compute = std::conditional_t<is_half_type<T>, float, T>;

}  // namespace capstan

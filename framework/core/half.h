#pragma once

#include <cstdint>
#include <type_traits>

#include "framework/core/host_device.h"

// Floating-point numbers of 16 bits. They are for storage: arithmetic converts them to float, which
// holds every one of them exactly, and a result is rounded once, when it is stored.
namespace capstan {

namespace detail {

// std::bit_cast is not for device code.
CAPSTAN_HOST_DEVICE constexpr std::uint32_t bits_of(float value) noexcept {
  return __builtin_bit_cast(std::uint32_t, value);
}
CAPSTAN_HOST_DEVICE constexpr float float_of(std::uint32_t bits) noexcept {
  return __builtin_bit_cast(float, bits);
}

/// The float nearest to `value` in which a second rounding, to fewer bits, goes as it would from
/// `value` itself: what does not fit is cut off and leaves its mark in the last bit.
CAPSTAN_HOST_DEVICE constexpr float round_to_odd(double value) noexcept {
  const float nearest = static_cast<float>(value);
  const double back = static_cast<double>(nearest);
  if (back == value || value != value) return nearest;
  std::uint32_t bits = bits_of(nearest);
  if ((back > value) == (value > 0.0)) --bits;  // towards zero
  return float_of(bits | 1u);
}

/// IEEE 754 binary16: 5 bits of exponent, 10 of fraction. Every GPU converts it in one instruction.
struct Binary16 {
  CAPSTAN_HOST_DEVICE static constexpr std::uint16_t encode(float value) noexcept {
#if defined(__CUDA_ARCH__)
    std::uint16_t code = 0;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(value));
    return code;
#else
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t sign = bits >> 16 & 0x8000u;
    const std::uint32_t size = bits & 0x7fffffffu;
    std::uint32_t result = 0;
    if (size >= 0x47800000u) {  // 2^16, infinity, NaN
      result = size > 0x7f800000u ? 0x7e00u : 0x7c00u;
    } else if (size < 0x38800000u) {
      // Below 2^-14 the distance of neighbours is 2^-24, and so it is for floats from 0.5 on.
      result = bits_of(float_of(size) + 0.5f) - 0x3f000000u;
    } else {
      result = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
    }
    return static_cast<std::uint16_t>(sign | result);
#endif
  }
  CAPSTAN_HOST_DEVICE static constexpr float decode(std::uint16_t bits) noexcept {
#if defined(__CUDA_ARCH__)
    float value = 0.0f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    const std::uint32_t size = (bits & 0x7fffu) << 13;
    const std::uint32_t sign = (bits & 0x8000u) << 16;
    // 2^112 corrects the exponent, also of the smallest numbers, which are not normalised.
    const float scaled = float_of(size) * float_of(0x77800000u);
    const std::uint32_t special = size >= 0x0f800000u ? 0x7f800000u : 0u;
    return float_of(bits_of(scaled) | special | sign);
#endif
  }
};

/// The upper half of a float: 8 bits of exponent, 7 of fraction.
struct Brain16 {
  CAPSTAN_HOST_DEVICE static constexpr std::uint16_t encode(float value) noexcept {
    const std::uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
    return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
  CAPSTAN_HOST_DEVICE static constexpr float decode(std::uint16_t bits) noexcept {
    return float_of(static_cast<std::uint32_t>(bits) << 16);
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

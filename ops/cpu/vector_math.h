#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

// Functions of float without branches or calls, so that loops over them vectorise; errors are a few
// units in the last place. Double goes to the standard library: it serves checks, not speed.
// Infinities, NaN and denormal results are as in the standard library.
namespace capstan::cpu {

namespace detail {

inline constexpr float kLn2High = 0.693359375f;  // few bits: n * kLn2High is exact
inline constexpr float kLn2Low = -2.12194440e-4f;
inline constexpr float kLog2E = 1.44269504f;

inline float power_of_two(std::int32_t exponent) {
  return std::bit_cast<float>((exponent + 127) << 23);
}

/// x = n ln 2 + r with |r| <= ln 2 / 2.
struct ReducedArgument {
  std::int32_t n;
  float r;
};

inline ReducedArgument reduce_argument(float x) {
  // Adding 1.5 * 2^23 leaves the rounded integer in the low bits of the mantissa.
  constexpr float kRound = 12582912.0f;
  const float shifted = x * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  return {std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kRound), r};
}

/// exp(r) - 1, Taylor: the next term is below 2^-27 of r.
inline float small_expm1(float r) {
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  return p * r * r + r;
}

}  // namespace detail

inline float fast_exp(float x) {
  x = x < -104.0f ? -104.0f : x;  // exp(-104) rounds to 0, exp(89) to infinity; NaN passes
  x = x > 89.0f ? 89.0f : x;
  const detail::ReducedArgument reduced = detail::reduce_argument(x);
  // Two factors: 2^n alone may lie outside of the normal range where the result does not.
  const std::int32_t half = reduced.n >> 1;
  return (1.0f + detail::small_expm1(reduced.r)) * detail::power_of_two(half) *
         detail::power_of_two(reduced.n - half);
}
inline double fast_exp(double x) { return std::exp(x); }

inline float fast_log(float x) {
  const bool denormal = x < 1.17549435e-38f;
  const float scaled = denormal ? x * 8388608.0f : x;
  const std::int32_t bits = std::bit_cast<std::int32_t>(scaled);
  const std::int32_t exponent = (bits - 0x3f3504f3) >> 23;  // mantissa in [sqrt(1/2), sqrt(2))
  const float m = std::bit_cast<float>(bits - (exponent << 23));
  const float e = static_cast<float>(exponent) - (denormal ? 23.0f : 0.0f);
  // log m = 2 atanh(s), |s| < 0.172.
  const float s = (m - 1.0f) / (m + 1.0f);
  const float z = s * s;
  const float tail = z * (2.0f / 3.0f + z * (2.0f / 5.0f + z * (2.0f / 7.0f + z * (2.0f / 9.0f))));
  float y = e * detail::kLn2High + (2.0f * s + (s * tail + e * detail::kLn2Low));
  y = x == 0.0f ? -HUGE_VALF : y;
  y = x < 0.0f ? std::bit_cast<float>(0x7fc00000) : y;
  // Infinity and NaN are their own logarithms.
  return x <= 3.40282347e+38f ? y : x;
}
inline double fast_log(double x) { return std::log(x); }

/// With t = exp(2 |x|) - 1, tanh |x| = t / (t + 2), which is exact to rounding near 0 too.
inline float fast_tanh(float x) {
  float twice = 2.0f * std::abs(x);
  twice = twice > 20.0f ? 20.0f : twice;
  const detail::ReducedArgument reduced = detail::reduce_argument(twice);
  const float scale = detail::power_of_two(reduced.n);
  const float t = scale * detail::small_expm1(reduced.r) + (scale - 1.0f);
  return std::copysign(t / (t + 2.0f), x);
}
inline double fast_tanh(double x) { return std::tanh(x); }

inline float fast_sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }
inline double fast_sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

template <typename T>
struct Normal {
  T cumulative;  ///< Phi(x) = erfc(-x / sqrt(2)) / 2
  T density;     ///< phi(x) = exp(-x^2 / 2) / sqrt(2 pi)
};

/// For x >= 0, Phi(-x) = phi(x) t q(t) with t = 1 / (1 + 0.35 x); q is a polynomial fitted to
/// Mills' ratio on [0, 14] with a relative error of 3.2e-8.
inline Normal<float> normal_at(float x) {
  const float t = 1.0f / (1.0f + 0.35f * std::abs(x));
  float q = -0.0730590362f;
  q = q * t + 0.360888443f;
  q = q * t - 0.640990574f;
  q = q * t + 0.399001652f;
  q = q * t - 0.057935305f;
  q = q * t + 0.264472453f;
  q = q * t + 0.300375691f;
  q = q * t + 0.350581819f;
  q = q * t + 0.349978954f;
  const float density = fast_exp(-0.5f * x * x) * 0.398942280f;
  const float tail = density * t * q;
  return {x > 0.0f ? 1.0f - tail : tail, density};
}
inline Normal<double> normal_at(double x) {
  return {0.5 * std::erfc(-x * 0.70710678118654752440),
          std::exp(-0.5 * x * x) * 0.39894228040143267794};
}

}  // namespace capstan::cpu

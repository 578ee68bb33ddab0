#include "framework/core/half.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "framework/core/dtype.h"

namespace capstan {
namespace {

/// What a format says about its numbers, from which the reference computes in double.
struct FormatFacts {
  int exponent_bits;
  int fraction_bits;
};
constexpr FormatFacts kBinary16{5, 10};
constexpr FormatFacts kBrain16{8, 7};

template <typename T>
constexpr FormatFacts kFacts = std::is_same_v<T, Float16> ? kBinary16 : kBrain16;

double value_of(std::uint16_t bits, FormatFacts facts) {
  const int bias = (1 << (facts.exponent_bits - 1)) - 1;
  const int exponent = bits >> facts.fraction_bits & ((1 << facts.exponent_bits) - 1);
  const int fraction = bits & ((1 << facts.fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << facts.exponent_bits) - 1) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - facts.fraction_bits);
  return sign *
         std::ldexp((1 << facts.fraction_bits) + fraction, exponent - bias - facts.fraction_bits);
}

/// All finite numbers of one sign in order: their bits are 0, 1, 2, ...
std::uint16_t infinity_bits(FormatFacts facts) {
  return static_cast<std::uint16_t>(((1 << facts.exponent_bits) - 1) << facts.fraction_bits);
}

template <typename T>
void check_decoding() {
  int wrong = 0;
  for (int bits = 0; bits < 65536; ++bits) {
    const auto code = static_cast<std::uint16_t>(bits);
    const double want = value_of(code, kFacts<T>);
    const float got = T::from_bits(code);
    const bool same = std::isnan(want) ? std::isnan(got)
                                       : static_cast<double>(got) == want &&
                                             std::signbit(got) == std::signbit(want);
    wrong += !same;
  }
  CHECK(wrong == 0);
}

template <typename T>
void check_round_trip() {
  int wrong = 0;
  for (int bits = 0; bits < 65536; ++bits) {
    const T number = T::from_bits(static_cast<std::uint16_t>(bits));
    const float value = number;
    if (std::isnan(value)) {
      wrong += !std::isnan(static_cast<float>(T(value)));
      wrong += !std::isnan(static_cast<float>(T(static_cast<double>(value))));
    } else {
      wrong += T(value).bits() != bits;
      wrong += T(static_cast<double>(value)).bits() != bits;
    }
  }
  CHECK(wrong == 0);
}

/// Between each number and the next one: just below, at and just above the middle.
template <typename T, typename Number>
void check_rounding() {
  int wrong = 0;
  for (int bits = 0; bits < infinity_bits(kFacts<T>); ++bits) {
    const auto low = static_cast<std::uint16_t>(bits);
    const auto high = static_cast<std::uint16_t>(bits + 1);
    const std::uint16_t even = bits % 2 == 0 ? low : high;
    const double low_value = value_of(low, kFacts<T>);
    // Beyond the largest number the distances go on as before.
    const double high_value =
        high == infinity_bits(kFacts<T>)
            ? 2.0 * low_value - value_of(static_cast<std::uint16_t>(bits - 1), kFacts<T>)
            : value_of(high, kFacts<T>);
    const auto middle = static_cast<Number>((low_value + high_value) / 2.0);
    const Number below = std::nextafter(middle, Number{0});
    const Number above = std::nextafter(middle, std::numeric_limits<Number>::infinity());
    wrong += T(below).bits() != low;
    wrong += T(middle).bits() != even;
    wrong += T(above).bits() != high;
    wrong += T(-below).bits() != (low | 0x8000);
    wrong += T(-middle).bits() != (even | 0x8000);
    wrong += T(-above).bits() != (high | 0x8000);
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_SUITE_BEGIN("core/half");

TEST_CASE_TEMPLATE("each of the 65536 codes means its number", T, Float16, BFloat16) {
  check_decoding<T>();
}

TEST_CASE_TEMPLATE("each number comes back from float and double", T, Float16, BFloat16) {
  check_round_trip<T>();
}

TEST_CASE_TEMPLATE("a float rounds to the nearest number, halfway to the even one", T, Float16,
                   BFloat16) {
  check_rounding<T, float>();
}

TEST_CASE_TEMPLATE("a double rounds once, not by way of float", T, Float16, BFloat16) {
  check_rounding<T, double>();
}

TEST_CASE("numbers beyond the largest are infinite, those below the smallest zero") {
  CHECK(Float16(65519.0f).bits() == 0x7bff);
  CHECK(Float16(65520.0f).bits() == 0x7c00);
  CHECK(Float16(-1e30f).bits() == 0xfc00);
  CHECK(Float16(1e300).bits() == 0x7c00);
  CHECK(Float16(std::ldexp(1.0, -25)).bits() == 0);
  CHECK(Float16(std::ldexp(1.0, -24)).bits() == 1);
  CHECK(Float16(-1e-300).bits() == 0x8000);
  CHECK(BFloat16(std::numeric_limits<float>::max()).bits() == 0x7f80);
  CHECK(BFloat16(-1e-300).bits() == 0x8000);
}

TEST_CASE("whole numbers convert as doubles do") {
  CHECK(static_cast<float>(Float16(2049)) == 2048.0f);
  CHECK(static_cast<float>(Float16(2051)) == 2052.0f);
  CHECK(static_cast<float>(BFloat16(std::int64_t{16842753})) == 16908288.0f);
  CHECK(static_cast<float>(Float16(true)) == 1.0f);
}

TEST_CASE("conversions are constants where their argument is") {
  static_assert(Float16(1.5f).bits() == 0x3e00);
  static_assert(static_cast<float>(BFloat16::from_bits(0x3fc0)) == 1.5f);
  static_assert(sizeof(Float16) == 2 && sizeof(BFloat16) == 2);
  CHECK(size_of(DType::float16) == sizeof(Float16));
  CHECK(name_of(DType::bfloat16) == std::string_view("bfloat16"));
}

TEST_SUITE_END();

}  // namespace capstan

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/cpu/eigen.h"

// Costly functions of many elements. Float goes through Eigen, a block at a time; double goes to
// the standard library, element by element: it serves checks, not speed.
namespace capstan::cpu {

inline constexpr std::int64_t kBlock = 256;
// Blocks are filled up to whole vectors of any processor, so that an element has the same bits
// wherever it lies.
inline constexpr std::int64_t kBlockUnit = 16;

template <typename T>
inline constexpr T kSqrtHalf = static_cast<T>(0.70710678118654752440);
template <typename T>
inline constexpr T kInverseSqrtTwoPi = static_cast<T>(0.39894228040143267794);

// A function has a form for vectors, which is good to a few units in the last place in [kLow,
// kHigh], and one for single elements, which serves the rest: infinities, NaN and results that are
// denormal or overflow are as in the standard library. Both ends and 1 lie in the domain.

struct Exp {
  static constexpr float kLow = -87.0f;
  static constexpr float kHigh = 88.0f;
  static auto of_vector(const auto& x) { return x.exp(); }
  template <typename T>
  static T of(T x) {
    return std::exp(x);
  }
};

struct Log {
  static constexpr float kLow = 1.17549435e-38f;
  static constexpr float kHigh = 3.40282347e+38f;
  static auto of_vector(const auto& x) { return x.log(); }
  template <typename T>
  static T of(T x) {
    return std::log(x);
  }
};

struct Tanh {
  static constexpr float kLow = -3.40282347e+38f;
  static constexpr float kHigh = 3.40282347e+38f;
  static auto of_vector(const auto& x) { return x.tanh(); }
  template <typename T>
  static T of(T x) {
    return std::tanh(x);
  }
};

struct Sigmoid {
  static constexpr float kLow = -87.0f;
  static constexpr float kHigh = 87.0f;
  // Eigen's own logistic() is good to 1e-3 only at -9.
  static auto of_vector(const auto& x) { return ((-x).exp() + 1.0f).inverse(); }
  template <typename T>
  static T of(T x) {
    return T{1} / (T{1} + std::exp(-x));
  }
};

struct Erf {
  static constexpr float kLow = -3.0f;
  static constexpr float kHigh = 3.0f;
  static auto of_vector(const auto& x) { return x.erf(); }
  template <typename T>
  static T of(T x) {
    return std::erf(x);
  }
};

/// x Phi(x), with the distribution function Phi of the standard normal distribution.
struct Gelu {
  static constexpr float kLow = Erf::kLow / kSqrtHalf<float>;
  static constexpr float kHigh = Erf::kHigh / kSqrtHalf<float>;
  static auto of_vector(const auto& x) { return 0.5f * x * ((kSqrtHalf<float> * x).erf() + 1.0f); }
  template <typename T>
  static T of(T x) {
    return T{0.5} * x * std::erfc(-kSqrtHalf<T> * x);
  }
};

/// Phi(x) + x phi(x).
struct GeluSlope {
  static constexpr float kLow = Gelu::kLow;
  static constexpr float kHigh = Gelu::kHigh;
  static auto of_vector(const auto& x) {
    return 0.5f * ((kSqrtHalf<float> * x).erf() + 1.0f) +
           kInverseSqrtTwoPi<float> * x * (-0.5f * x * x).exp();
  }
  template <typename T>
  static T of(T x) {
    return T{0.5} * std::erfc(-kSqrtHalf<T> * x) +
           kInverseSqrtTwoPi<T> * x * std::exp(T{-0.5} * x * x);
  }
};

/// y[i] = function(x[i]) for i < count <= kBlock. Both are kBlock long and aligned; x is clobbered
/// beyond `count`.
template <typename Function>
void evaluate_block(float* x, std::int64_t count, float* y) {
  using Block = Eigen::Map<Eigen::ArrayXf, Eigen::Aligned64>;
  const std::int64_t filled = (count + kBlockUnit - 1) / kBlockUnit * kBlockUnit;
  std::fill(x + count, x + filled, 1.0f);
  Block(y, filled) = Function::of_vector(Block(x, filled));
  bool inside = true;
  for (std::int64_t i = 0; i < filled; ++i) {
    inside &= (x[i] >= Function::kLow) & (x[i] <= Function::kHigh);
  }
  if (inside) return;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!(x[i] >= Function::kLow && x[i] <= Function::kHigh)) y[i] = Function::of(x[i]);
  }
}

template <typename Function>
void evaluate_block(const double* x, std::int64_t count, double* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = Function::of(x[i]);
}

/// Calls `use(i, function(input(i)))` for i < count.
template <typename Function, typename T, typename Input, typename Use>
void evaluate(std::int64_t count, const Input& input, const Use& use) {
  alignas(64) T x[kBlock];
  alignas(64) T y[kBlock];
  for (std::int64_t first = 0; first < count; first += kBlock) {
    const std::int64_t n = std::min(kBlock, count - first);
    for (std::int64_t i = 0; i < n; ++i) x[i] = input(first + i);
    evaluate_block<Function>(x, n, y);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) use(first + i, y[i]);
  }
}

}  // namespace capstan::cpu

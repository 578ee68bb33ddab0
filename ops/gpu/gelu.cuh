// The normal distribution, for gelu and its gradient. erfc and not erf: no cancellation for very
// negative x.
#pragma once

namespace capstan::gpu {

/// Phi(x).
template <typename T>
__device__ T normal_cumulative(T x) {
  return T(0.5) * ::erfc(-x * T(0.70710678118654752440));
}

/// phi(x) = exp(-x^2 / 2) / sqrt(2 pi).
template <typename T>
__device__ T normal_density(T x) {
  return T(0.39894228040143267794) * ::exp(T(-0.5) * x * x);
}

}  // namespace capstan::gpu

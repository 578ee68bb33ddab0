#pragma once

#include "framework/core/host_device.h"
#include "ops/pool_kernels.h"

// Windows of pooling along one axis; for kernels of both devices.
namespace capstan {

/// Inputs begin, begin + dilation, ... before end, and how many a mean divides by.
struct PoolWindow {
  std::int64_t begin, end, count;
};

CAPSTAN_HOST_DEVICE inline std::int64_t ceil_quotient(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// The window of output `o`.
CAPSTAN_HOST_DEVICE inline PoolWindow pool_window(const PoolAxis& axis, std::int64_t o,
                                                  bool count_padding = false) {
  if (axis.kernel == 0) {
    const std::int64_t begin = o * axis.input / axis.output;
    const std::int64_t end = ceil_quotient((o + 1) * axis.input, axis.output);
    return {begin, end, end - begin};
  }
  const std::int64_t start = o * axis.stride - axis.padding;
  const std::int64_t stop = start + axis.dilation * (axis.kernel - 1) + 1;
  const std::int64_t begin =
      start < 0 ? start + ceil_quotient(-start, axis.dilation) * axis.dilation : start;
  const std::int64_t end = stop < axis.input ? stop : axis.input;
  const std::int64_t room = axis.input + axis.padding;
  return {begin, end, count_padding ? (stop < room ? stop : room) - start : end - begin};
}

struct PoolOutputs {
  std::int64_t begin, end;
};

/// The outputs whose windows can have input `i`: all that do, and with dilation more.
CAPSTAN_HOST_DEVICE inline PoolOutputs pool_outputs(const PoolAxis& axis, std::int64_t i) {
  if (axis.kernel == 0) {
    return {i * axis.output / axis.input, ceil_quotient((i + 1) * axis.output, axis.input)};
  }
  const std::int64_t reach = axis.dilation * (axis.kernel - 1) + 1;
  const std::int64_t from = i + axis.padding - reach + 1;
  const std::int64_t end = (i + axis.padding) / axis.stride + 1;
  return {from <= 0 ? 0 : ceil_quotient(from, axis.stride), end < axis.output ? end : axis.output};
}

}  // namespace capstan

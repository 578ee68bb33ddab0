#include "ops/checks.h"

#include <cmath>
#include <limits>

namespace capstan::ops::detail {
namespace {

template <typename T>
bool fits(double value) {
  return value == std::trunc(value) &&
         value >= static_cast<double>(std::numeric_limits<T>::lowest()) &&
         value <= static_cast<double>(std::numeric_limits<T>::max());
}

bool fits(double value, DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::float64:
    case DType::float16:
    case DType::bfloat16: return true;
    // 2^63 itself is a double but not an int64.
    case DType::int64: return fits<std::int64_t>(value) && value < 9223372036854775808.0;
    case DType::int32: return fits<std::int32_t>(value);
    case DType::uint8: return fits<std::uint8_t>(value);
    case DType::boolean: return value == 0.0 || value == 1.0;
  }
  return false;
}

}  // namespace

void check_representable(const char* op, double value, DType dtype) {
  CAPSTAN_CHECK(fits(value, dtype), DTypeError, op, ": a ", dtype, " tensor cannot hold ", value,
                "; convert the tensor with .to(DType::float32) first");
}

void check_writable(const char* op, const Tensor& y) {
  for (int axis = 0; axis < y.rank(); ++axis) {
    CAPSTAN_CHECK(y.strides()[axis] != 0 || y.size(axis) <= 1, ValueError, op,
                  ": cannot write to a tensor that was expanded, got shape ", y.shape(),
                  " with strides ", y.strides(), "; write to a clone");
  }
}

}  // namespace capstan::ops::detail

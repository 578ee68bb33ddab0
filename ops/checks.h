#pragma once

#include "framework/tensor/tensor.h"

// Checks that several operations share; `op` begins the message.
namespace capstan::ops::detail {

inline void check_same_device(const char* op, const Tensor& a, const Tensor& b) {
  CAPSTAN_CHECK(a.device() == b.device(), DeviceError, op,
                ": operands are on different devices, got ", describe(a), " and ", describe(b),
                "; move one with .to(device)");
}

inline void check_same_dtype(const char* op, const Tensor& a, const Tensor& b) {
  CAPSTAN_CHECK(a.dtype() == b.dtype(), DTypeError, op, ": dtypes differ, got ", describe(a),
                " and ", describe(b), "; convert one with .to(dtype)");
}

inline void check_floating(const char* op, const Tensor& x) {
  CAPSTAN_CHECK(is_floating(x.dtype()), DTypeError, op, ": needs a floating dtype, got ",
                describe(x), "; convert it with .to(DType::float32)");
}

inline void check_numeric(const char* op, const Tensor& x) {
  CAPSTAN_CHECK(x.dtype() != DType::boolean, DTypeError, op, ": needs a numeric dtype, got ",
                describe(x), "; convert it with .to(dtype)");
}

inline void check_index_dtype(const char* op, const char* what, const Tensor& x) {
  CAPSTAN_CHECK(x.dtype() == DType::int64 || x.dtype() == DType::int32, DTypeError, op, ": ", what,
                " must be int64 or int32, got ", describe(x));
}

inline void check_shape(const char* op, const char* what, const Tensor& x, const Shape& want) {
  CAPSTAN_CHECK(x.shape() == want, ShapeError, op, ": ", what, " must have shape ", want, ", got ",
                x.shape());
}

/// A number that would change its value in `dtype` is refused instead of being rounded in silence.
void check_representable(const char* op, double value, DType dtype);

/// Writing through a stretched axis would write elements several times.
void check_writable(const char* op, const Tensor& y);

}  // namespace capstan::ops::detail

#pragma once

#include <utility>

#include "framework/core/dtype.h"
#include "framework/core/error.h"

// Turns a runtime DType into a template argument: `visit_floating(dtype, "softmax", [&]<typename
// T>() { ... });`. For sources, not for public headers.
namespace capstan {

/// float32 and float64: for what serves float16 and bfloat16 by way of float32.
/// @throws DTypeError naming `op` for any other.
template <typename Body>
decltype(auto) visit_full_floating(DType dtype, const char* op, Body&& body) {
  switch (dtype) {
    case DType::float32: return std::forward<Body>(body).template operator()<float>();
    case DType::float64: return std::forward<Body>(body).template operator()<double>();
    default: break;
  }
  throw DTypeError(detail::concat(op, ": needs float32 or float64, got ", dtype));
}

/// The floating dtypes.
template <typename Body>
decltype(auto) visit_floating(DType dtype, const char* op, Body&& body) {
  switch (dtype) {
    case DType::float32: return std::forward<Body>(body).template operator()<float>();
    case DType::float64: return std::forward<Body>(body).template operator()<double>();
    case DType::float16: return std::forward<Body>(body).template operator()<Float16>();
    case DType::bfloat16: return std::forward<Body>(body).template operator()<BFloat16>();
    default: break;
  }
  throw DTypeError(detail::concat(op, ": needs a floating dtype, got ", dtype));
}

/// Everything but bool.
template <typename Body>
decltype(auto) visit_numeric(DType dtype, const char* op, Body&& body) {
  switch (dtype) {
    case DType::float32: return std::forward<Body>(body).template operator()<float>();
    case DType::float64: return std::forward<Body>(body).template operator()<double>();
    case DType::float16: return std::forward<Body>(body).template operator()<Float16>();
    case DType::bfloat16: return std::forward<Body>(body).template operator()<BFloat16>();
    case DType::int64: return std::forward<Body>(body).template operator()<std::int64_t>();
    case DType::int32: return std::forward<Body>(body).template operator()<std::int32_t>();
    case DType::uint8: return std::forward<Body>(body).template operator()<std::uint8_t>();
    default: break;
  }
  throw DTypeError(detail::concat(op, ": needs a numeric dtype, got ", dtype));
}

/// Every dtype.
template <typename Body>
decltype(auto) visit_all(DType dtype, const char* op, Body&& body) {
  if (dtype == DType::boolean) return std::forward<Body>(body).template operator()<bool>();
  return visit_numeric(dtype, op, std::forward<Body>(body));
}

/// int64 and int32: the dtypes of indices and labels.
template <typename Body>
decltype(auto) visit_index(DType dtype, const char* op, Body&& body) {
  switch (dtype) {
    case DType::int64: return std::forward<Body>(body).template operator()<std::int64_t>();
    case DType::int32: return std::forward<Body>(body).template operator()<std::int32_t>();
    default: break;
  }
  throw DTypeError(detail::concat(op, ": needs int64 or int32 indices, got ", dtype));
}

}  // namespace capstan

#pragma once

#include "autograd/autocast.h"
#include "framework/tensor/tensor.h"

// How an operation obeys Autocast; for sources of this folder. At its head:
//
//   if (autocasts(CastTo::float32, x)) [[unlikely]] return exp(autocast(CastTo::float32, x),
//   where);
namespace capstan::autograd {

enum class CastTo : std::uint8_t { lower, float32 };

namespace detail {

[[nodiscard]] inline DType autocast_target(CastTo to, const Tensor& tensor) noexcept {
  return to == CastTo::float32 ? DType::float32 : autocast_dtype(tensor.device().type);
}

[[nodiscard]] inline bool is_autocast(CastTo to, const Tensor& tensor) {
  return tensor.defined() && is_autocast_enabled(tensor.device().type) &&
         is_floating(tensor.dtype()) && tensor.dtype() != DType::float64 &&
         tensor.dtype() != autocast_target(to, tensor);
}

}  // namespace detail

/// True if Autocast wants another dtype for one of these; undefined tensors are fine as they are.
template <typename... Tensors>
[[nodiscard]] bool autocasts(CastTo to, const Tensors&... tensors) {
  return capstan::detail::autocast_modes.any() && (detail::is_autocast(to, tensors) || ...);
}

/// `tensor` in the dtype that Autocast wants; differentiable.
[[nodiscard]] Tensor autocast(CastTo to, const Tensor& tensor);

}  // namespace capstan::autograd

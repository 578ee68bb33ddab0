#pragma once

#include <cstdint>
#include <optional>

#include "framework/core/call_site.h"
#include "framework/core/device.h"
#include "framework/core/dtype.h"

// Mixed precision. While an Autocast scope lives, operations convert their floating operands:
//
//   to its dtype    matmul, bmm, linear, conv1d, conv2d
//   to float32      exp, expm1, log, log1p, reciprocal, rsqrt, pow, sum, mean, softmax,
//                   log_softmax, layer_norm, group_norm, rms_norm,
//                   and the losses
//   to the widest   binary arithmetic, comparisons, where and cat, as without a scope
//
// All others compute in the dtype they get. float64 and other dtypes are left alone. Conversions
// are differentiable: gradients arrive in the dtype of the tensor they belong to. Backward is
// outside of every scope: its operations run in the dtypes that forward chose; only the backward of
// a custom `Function` runs under the modes of its forward.
namespace capstan {

struct AutocastOptions {
  std::optional<DType> dtype = {};  ///< float16 or bfloat16; if left out, the mode's as it is
  bool enabled = true;              ///< false: a stretch without conversions inside of a scope
  bool cache_enabled = true;        ///< convert a parameter once for as long as it does not change
};

namespace detail {

struct AutocastMode {
  bool enabled;
  DType dtype;
};

/// What Autocast sets; of one thread.
struct AutocastModes {
  AutocastMode cpu{false, DType::bfloat16};
  AutocastMode gpu{false, DType::float16};
  bool cache_enabled = true;

  [[nodiscard]] const AutocastMode& of(DeviceType type) const noexcept {
    return type == DeviceType::cpu ? cpu : gpu;
  }
  [[nodiscard]] bool any() const noexcept { return cpu.enabled || gpu.enabled; }
};

inline constinit thread_local AutocastModes autocast_modes;

/// The thread's modes, but with conversions kept for nobody and taken from nobody.
[[nodiscard]] inline AutocastModes uncached_autocast_modes() noexcept {
  AutocastModes modes = autocast_modes;
  modes.cache_enabled = false;
  return modes;
}
/// The dtype to which the thread's scope for `type` converts, if there is one.
[[nodiscard]] inline std::optional<DType> autocast_target(DeviceType type) noexcept {
  const AutocastMode& mode = autocast_modes.of(type);
  return mode.enabled ? std::optional(mode.dtype) : std::nullopt;
}

/// Sets the modes of the thread and puts the old ones back.
class [[nodiscard]] AutocastModesGuard {
 public:
  explicit AutocastModesGuard(const AutocastModes& modes) noexcept : saved_(autocast_modes) {
    autocast_modes = modes;
  }
  ~AutocastModesGuard() { autocast_modes = saved_; }
  AutocastModesGuard(const AutocastModesGuard&) = delete;
  AutocastModesGuard& operator=(const AutocastModesGuard&) = delete;

 private:
  const AutocastModes saved_;
};

}  // namespace detail

/// Sets the mode of one type of device for the calling thread, and puts the old one back. Scopes
/// nest. Without a dtype the CPU starts with bfloat16 and the GPU with float16.
///
/// The conversion of a float32 parameter (a leaf that requires a gradient) to the scope's dtype is
/// kept until the outermost scope ends, and used again while the parameter has not been written and
/// the same stream is current. What a capture recorded is used in that capture only, and what was
/// there before is not used in it: each replay converts the weights that it finds.
class [[nodiscard]] Autocast {
 public:
  /// @throws DTypeError  for another dtype than float16 and bfloat16.
  explicit Autocast(DeviceType type, AutocastOptions options = {}, Where where = Where::current());
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const detail::AutocastModes saved_;
};

[[nodiscard]] inline bool is_autocast_enabled(DeviceType type) noexcept {
  return detail::autocast_modes.of(type).enabled;
}
/// The dtype that the innermost scope for `type` has, or would have.
[[nodiscard]] inline DType autocast_dtype(DeviceType type) noexcept {
  return detail::autocast_modes.of(type).dtype;
}
[[nodiscard]] inline bool is_autocast_cache_enabled() noexcept {
  return detail::autocast_modes.cache_enabled;
}
/// Drops the calling thread's converted parameters, and their memory unless a graph needs it.
void clear_autocast_cache() noexcept;

}  // namespace capstan

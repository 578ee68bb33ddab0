#pragma once

#include <vector>

#include "nn/optim/optimizer.h"

namespace capstan::nn {

struct GradScalerOptions {
  double init_scale = 65536.0;
  double growth_factor = 2.0;           ///< at least 1
  double backoff_factor = 0.5;          ///< in (0, 1)
  std::int64_t growth_interval = 2000;  ///< steps without inf or NaN in a row before it grows
  bool enabled = true;                  ///< false: losses and steps pass as they are
};

/// Scales losses so that small gradients of half precision stay above zero, and skips steps whose
/// gradients are inf or NaN (Micikevicius et al. 2018). Scale, count of good steps and the finding
/// live on the device and are changed in place; the host reads nothing. So a whole step may be
/// captured, and parts of it too: replays follow what happens between them.
///
///     scaler.scale(loss).backward();
///     scaler.unscale_(optimizer);  // only if gradients are looked at or clipped
///     scaler.step(optimizer);
///     scaler.update();
class GradScaler final {
 public:
  /// @throws ValueError  on options out of their domain.
  explicit GradScaler(Device device, GradScalerOptions options = {},
                      Where where = Where::current());
  GradScaler(const GradScaler&) = delete;
  GradScaler& operator=(const GradScaler&) = delete;

  /// loss * scale, differentiable.
  [[nodiscard]] Tensor scale(const Tensor& loss, Where where = Where::current()) const;
  /// Divides the gradients of the optimiser's parameters by the scale, in place, and notes on the
  /// device whether one of them was inf or NaN. @throws StateError if it was called since the last
  ///   `update`, or after `step`; DTypeError for float16 gradients, whose parameters should be
  ///   float32; DeviceError if the optimiser is on another device.
  void unscale_(Optimizer& optimizer, Where where = Where::current());
  /// unscale_, if that is still to be done, and optimizer.step(), which the device skips where it
  /// has found inf or NaN. @throws as both; StateError if called twice without `update`.
  void step(Optimizer& optimizer, Where where = Where::current());
  /// Adapts the scale: back off where any optimiser found inf or NaN, grow after growth_interval
  /// good steps unless that would overflow. @throws StateError if no optimiser was ever unscaled.
  void update(Where where = Where::current());

  [[nodiscard]] bool is_enabled() const noexcept { return options_.enabled; }
  /// float32 scalar on the device.
  [[nodiscard]] const Tensor& scale_tensor() const noexcept { return scale_; }
  /// int32 scalar on the device: good steps since the scale changed.
  [[nodiscard]] const Tensor& growth_tracker() const noexcept { return tracker_; }
  /// Only enqueued. @throws ValueError unless positive; CaptureError while capturing.
  void set_scale(double value, Where where = Where::current());

  /// "scale" and "growth_tracker"; they share memory.
  [[nodiscard]] StateDict state_dict() const;
  /// Copies in place. @throws as nn::copy_state.
  void load_state_dict(const StateDict& state, Where where = Where::current());

 private:
  enum class Stage : std::uint8_t { ready, unscaled, stepped };
  struct Known {
    Tensor found_inf;
    Stage stage;
  };

  [[nodiscard]] Known& known(Optimizer& optimizer);
  void keep_stages();
  void unscale(Known& entry, const Optimizer& optimizer) const;

  const GradScalerOptions options_;
  Tensor scale_;
  Tensor tracker_;
  std::vector<Known> known_;
};

}  // namespace capstan::nn

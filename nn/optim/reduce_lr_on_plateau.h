#pragma once

#include <vector>

#include "nn/optim/optimizer.h"

namespace capstan::nn {

enum class PlateauMode : std::uint8_t { min, max };
enum class ThresholdMode : std::uint8_t { rel, abs };

struct ReduceLROnPlateauOptions {
  PlateauMode mode = PlateauMode::min;  ///< which metric is better
  double factor = 0.1;                  ///< in [0, 1)
  std::int64_t patience = 10;           ///< calls without improvement that it bears
  double threshold = 1e-4;              ///< an improvement is larger: absolute, or part of the best
  ThresholdMode threshold_mode = ThresholdMode::rel;
  std::int64_t cooldown = 0;  ///< calls after a reduction that do not count
  double min_lr = 0.0;
  double eps = 1e-8;  ///< smaller changes of a rate are left out
};

/// Multiplies the rates of all groups by `factor` when a metric, say the loss of an epoch, has
/// stopped to improve. Rates and metrics are host values; replays follow. The optimiser must
/// outlive it.
class ReduceLROnPlateau final {
 public:
  /// @throws ValueError  on options out of their domain.
  explicit ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions options = {},
                             Where where = Where::current());
  ReduceLROnPlateau(const ReduceLROnPlateau&) = delete;
  ReduceLROnPlateau& operator=(const ReduceLROnPlateau&) = delete;

  /// Tells it the metric of the last epoch. @throws CaptureError while capturing.
  void step(double metric, Where where = Where::current());
  [[nodiscard]] double best() const noexcept { return state_.best; }

  /// "best", "bad_steps", "cooldown": copies on the CPU. Rates are the optimiser's.
  [[nodiscard]] StateDict state_dict() const;
  /// @throws as nn::copy_state.
  void load_state_dict(const StateDict& state, Where where = Where::current());

 private:
  struct State {
    double best;
    std::int64_t bad_steps = 0;
    std::int64_t cooldown = 0;  // calls left
  };

  [[nodiscard]] bool is_better(double metric) const noexcept;
  void reduce();

  Optimizer& optimizer_;
  const ReduceLROnPlateauOptions options_;
  State state_;
};

}  // namespace capstan::nn

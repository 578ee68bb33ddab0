#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/optim/optimizer.h"

// Learning rates as functions of the number of finished steps, with PyTorch's names and values.
// They run on the host and set the rate on the device between steps, which replays follow.
namespace capstan::nn {

/// The rate of a group in step `step` (from 0 on), from the one that it had when the scheduler was
/// made.
using Schedule = std::function<double(double initial, std::int64_t step)>;

/// Sets the rates of all groups of an optimiser, which must outlive it, by a schedule: those of
/// step 0 when made. One scheduler at a time serves an optimiser; SequentialLR combines schedules.
class Scheduler {
 public:
  /// @throws ValueError  if the schedule gives a negative rate.
  Scheduler(Optimizer& optimizer, Schedule schedule, Where where = Where::current());
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Sets the rates of the next step; call it after each step, or after each epoch.
  /// @throws CaptureError while capturing, since every replay would set the same rates again;
  ///   StateError if groups were added; what the schedule throws. Nothing has changed then.
  void step(Where where = Where::current());
  /// Calls of `step`.
  [[nodiscard]] std::int64_t step_count() const noexcept { return steps_; }
  /// The rates that it set last, one for each group.
  [[nodiscard]] const std::vector<double>& last_lr() const noexcept { return rates_; }

  /// "step", "initial_lr", "last_lr": copies on the CPU.
  [[nodiscard]] StateDict state_dict() const;
  /// Also sets the rates. @throws as nn::copy_state; CaptureError while capturing.
  void load_state_dict(const StateDict& state, Where where = Where::current());

 private:
  void move_to(std::int64_t step);

  Optimizer& optimizer_;
  const Schedule schedule_;
  std::vector<double> initial_;
  std::vector<double> rates_;
  std::int64_t steps_ = 0;
};

// Each class has `schedule(options)` for SequentialLR. Constructors @throw ValueError on options
// out of their domain.

struct StepLROptions {
  std::int64_t step_size = 1;  ///< at least 1
  double gamma = 0.1;
};
/// initial * gamma^floor(step / step_size).
class StepLR final : public Scheduler {
 public:
  StepLR(Optimizer& optimizer, StepLROptions options, Where where = Where::current())
      : Scheduler(optimizer, schedule(options, where), where) {}
  [[nodiscard]] static Schedule schedule(StepLROptions options, Where where = Where::current());
};

struct MultiStepLROptions {
  std::vector<std::int64_t> milestones;  ///< ascending; equal ones count each
  double gamma = 0.1;
};
/// initial * gamma^(number of milestones up to step).
class MultiStepLR final : public Scheduler {
 public:
  MultiStepLR(Optimizer& optimizer, const MultiStepLROptions& options,
              Where where = Where::current())
      : Scheduler(optimizer, schedule(options, where), where) {}
  [[nodiscard]] static Schedule schedule(MultiStepLROptions options,
                                         Where where = Where::current());
};

struct ExponentialLROptions {
  double gamma = 0.9;
};
/// initial * gamma^step.
class ExponentialLR final : public Scheduler {
 public:
  ExponentialLR(Optimizer& optimizer, ExponentialLROptions options, Where where = Where::current())
      : Scheduler(optimizer, schedule(options, where), where) {}
  [[nodiscard]] static Schedule schedule(ExponentialLROptions options,
                                         Where where = Where::current());
};

struct CosineAnnealingLROptions {
  std::int64_t t_max = 1;  ///< steps of half a wave, at least 1
  double eta_min = 0.0;
};
/// From initial to eta_min in t_max steps along half a cosine wave, which goes on beyond
/// (Loshchilov and Hutter 2017).
class CosineAnnealingLR final : public Scheduler {
 public:
  CosineAnnealingLR(Optimizer& optimizer, CosineAnnealingLROptions options,
                    Where where = Where::current())
      : Scheduler(optimizer, schedule(options, where), where) {}
  [[nodiscard]] static Schedule schedule(CosineAnnealingLROptions options,
                                         Where where = Where::current());
};

struct CosineAnnealingWarmRestartsOptions {
  std::int64_t t_0 = 1;     ///< steps of the first wave, at least 1
  std::int64_t t_mult = 1;  ///< each further wave is that many times as long, at least 1
  double eta_min = 0.0;
};
/// The same waves, each starting again at initial.
class CosineAnnealingWarmRestarts final : public Scheduler {
 public:
  CosineAnnealingWarmRestarts(Optimizer& optimizer, CosineAnnealingWarmRestartsOptions options,
                              Where where = Where::current())
      : Scheduler(optimizer, schedule(options, where), where) {}
  [[nodiscard]] static Schedule schedule(CosineAnnealingWarmRestartsOptions options,
                                         Where where = Where::current());
};

enum class Annealing : std::uint8_t { cosine, linear };

struct OneCycleLROptions {
  double max_lr = 0.1;
  std::int64_t total_steps = 1;  ///< of the whole cycle, at least 1
  double pct_start = 0.3;        ///< the part of it that rises, in [0, 1]
  Annealing anneal_strategy = Annealing::cosine;
  double div_factor = 25.0;       ///< it starts at max_lr / div_factor
  double final_div_factor = 1e4;  ///< and ends at a further part of that
  bool three_phase = false;  ///< fall to the start in as many steps as it rose, then to the end
};
/// One rise and fall, whatever the optimiser's rate was (Smith and Topin 2018). Momenta stay as
/// they are. Beyond total_steps `step` throws ValueError.
class OneCycleLR final : public Scheduler {
 public:
  OneCycleLR(Optimizer& optimizer, OneCycleLROptions options, Where where = Where::current())
      : Scheduler(optimizer, schedule(options, where), where) {}
  [[nodiscard]] static Schedule schedule(OneCycleLROptions options, Where where = Where::current());
};

struct LinearLROptions {
  double start_factor = 1.0 / 3.0;  ///< in (0, 1]
  double end_factor = 1.0;          ///< in [0, 1]
  std::int64_t total_iters = 5;     ///< at least 1
};
/// initial times a factor that goes straight from start to end in total_iters steps: a warm-up.
class LinearLR final : public Scheduler {
 public:
  explicit LinearLR(Optimizer& optimizer, LinearLROptions options = {},
                    Where where = Where::current())
      : Scheduler(optimizer, schedule(options, where), where) {}
  [[nodiscard]] static Schedule schedule(LinearLROptions options, Where where = Where::current());
};

/// initial times `factor(step)`.
class LambdaLR final : public Scheduler {
 public:
  LambdaLR(Optimizer& optimizer, std::function<double(std::int64_t step)> factor,
           Where where = Where::current())
      : Scheduler(optimizer, schedule(std::move(factor)), where) {}
  [[nodiscard]] static Schedule schedule(std::function<double(std::int64_t step)> factor);
};

/// One schedule after the other: number i + 1 begins, at its own step 0, at milestones[i].
class SequentialLR final : public Scheduler {
 public:
  SequentialLR(Optimizer& optimizer, std::vector<Schedule> schedules,
               std::vector<std::int64_t> milestones, Where where = Where::current())
      : Scheduler(optimizer, schedule(std::move(schedules), std::move(milestones), where), where) {}
  /// `milestones` are ascending, one fewer than there are schedules.
  [[nodiscard]] static Schedule schedule(std::vector<Schedule> schedules,
                                         std::vector<std::int64_t> milestones,
                                         Where where = Where::current());
};

}  // namespace capstan::nn

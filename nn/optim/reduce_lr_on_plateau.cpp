#include "nn/optim/reduce_lr_on_plateau.h"

#include <algorithm>
#include <limits>

#include "framework/tensor/write_journal.h"

namespace capstan::nn {
namespace {

constexpr const char* kName = "ReduceLROnPlateau";
constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions options,
                                     Where where)
    : optimizer_(optimizer),
      options_(options),
      state_{options.mode == PlateauMode::min ? kInfinity : -kInfinity} {
  const CallSite site(where);
  CAPSTAN_CHECK(options.factor >= 0.0 && options.factor < 1.0, ValueError, kName,
                ": factor must be in [0, 1), got ", options.factor);
  CAPSTAN_CHECK(options.patience >= 0 && options.cooldown >= 0, ValueError, kName,
                ": patience and cooldown must be at least 0, got ", options.patience, " and ",
                options.cooldown);
  CAPSTAN_CHECK(options.threshold >= 0.0 && options.min_lr >= 0.0 && options.eps >= 0.0, ValueError,
                kName, ": threshold, min_lr and eps must be at least 0, got ", options.threshold,
                ", ", options.min_lr, " and ", options.eps);
}

bool ReduceLROnPlateau::is_better(double metric) const noexcept {
  const bool relative = options_.threshold_mode == ThresholdMode::rel;
  if (options_.mode == PlateauMode::min) {
    return metric <
           (relative ? state_.best * (1.0 - options_.threshold) : state_.best - options_.threshold);
  }
  return metric >
         (relative ? state_.best * (1.0 + options_.threshold) : state_.best + options_.threshold);
}

void ReduceLROnPlateau::step(double metric, Where where) {
  const CallSite site(where);
  refuse_while_capturing(optimizer_.step_tensor().device(), Forbidden::scheduler_step);
  if (WriteJournal* journal = WriteJournal::current()) {
    journal->keep_host(&state_, [this, state = state_] { state_ = state; });
  }
  if (is_better(metric)) {
    state_.best = metric;
    state_.bad_steps = 0;
  } else {
    ++state_.bad_steps;
  }
  if (state_.cooldown > 0) {
    --state_.cooldown;
    state_.bad_steps = 0;
  }
  if (state_.bad_steps <= options_.patience) return;
  reduce();
  state_.cooldown = options_.cooldown;
  state_.bad_steps = 0;
}

void ReduceLROnPlateau::reduce() {
  for (std::size_t i = 0; i < optimizer_.group_count(); ++i) {
    const double before = optimizer_.learning_rate(i);
    const double rate = std::max(before * options_.factor, options_.min_lr);
    if (before - rate > options_.eps) optimizer_.set_learning_rate(i, rate);
  }
}

StateDict ReduceLROnPlateau::state_dict() const {
  return {{"best", Tensor::from_vector<double>({}, {state_.best})},
          {"bad_steps", Tensor::from_vector<std::int64_t>({}, {state_.bad_steps})},
          {"cooldown", Tensor::from_vector<std::int64_t>({}, {state_.cooldown})}};
}

void ReduceLROnPlateau::load_state_dict(const StateDict& state, Where where) {
  const CallSite site(where);
  const StateDict loaded = state_dict();
  copy_state("load_state_dict", loaded, state, /*strict=*/true);
  state_ = {loaded[0].second.item<double>(), loaded[1].second.item<std::int64_t>(),
            loaded[2].second.item<std::int64_t>()};
}

}  // namespace capstan::nn

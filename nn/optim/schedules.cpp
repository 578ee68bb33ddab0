#include <algorithm>
#include <cmath>
#include <numbers>

#include "nn/optim/scheduler.h"

namespace capstan::nn {
namespace {

void check_steps(const char* name, const char* what, std::int64_t value) {
  CAPSTAN_CHECK(value >= 1, ValueError, name, ": ", what, " must be at least 1, got ", value);
}

void check_not_negative(const char* name, const char* what, double value) {
  CAPSTAN_CHECK(value >= 0.0 && std::isfinite(value), ValueError, name, ": ", what,
                " must be at least 0, got ", value);
}

void check_ascending(const char* name, const std::vector<std::int64_t>& milestones) {
  for (std::size_t i = 0; i < milestones.size(); ++i) {
    const std::int64_t before = i == 0 ? 0 : milestones[i - 1];
    CAPSTAN_CHECK(milestones[i] >= before, ValueError, name,
                  ": milestones must be ascending and at least 0, got ", milestones[i], " after ",
                  before);
  }
}

/// From `start` to `end` along half a wave, at `part` of it.
double cosine(double start, double end, double part) {
  return end + (start - end) * (1.0 + std::cos(std::numbers::pi * part)) / 2.0;
}

double power(double base, std::int64_t exponent) {
  return std::pow(base, static_cast<double>(exponent));
}

double ratio(std::int64_t a, std::int64_t b) {
  return static_cast<double>(a) / static_cast<double>(b);
}

std::int64_t count_up_to(const std::vector<std::int64_t>& milestones, std::int64_t step) {
  return std::upper_bound(milestones.begin(), milestones.end(), step) - milestones.begin();
}

/// A straight or cosine way to a rate, which it reaches at step `end`.
struct Phase {
  double end;
  double start_rate, end_rate;
};

std::vector<Phase> one_cycle_phases(const OneCycleLROptions& options) {
  const double start = options.max_lr / options.div_factor;
  const double finish = start / options.final_div_factor;
  const double last = static_cast<double>(options.total_steps - 1);
  const double top = options.pct_start * static_cast<double>(options.total_steps) - 1.0;
  if (!options.three_phase) {
    return {{top, start, options.max_lr}, {last, options.max_lr, finish}};
  }
  return {{top, start, options.max_lr},
          {2.0 * options.pct_start * static_cast<double>(options.total_steps) - 2.0, options.max_lr,
           start},
          {last, start, finish}};
}

}  // namespace

Schedule StepLR::schedule(StepLROptions options, Where where) {
  const CallSite site(where);
  check_steps("StepLR", "step_size", options.step_size);
  check_not_negative("StepLR", "gamma", options.gamma);
  return [options](double initial, std::int64_t step) {
    return initial * power(options.gamma, step / options.step_size);
  };
}

Schedule MultiStepLR::schedule(MultiStepLROptions options, Where where) {
  const CallSite site(where);
  check_ascending("MultiStepLR", options.milestones);
  check_not_negative("MultiStepLR", "gamma", options.gamma);
  return [options = std::move(options)](double initial, std::int64_t step) {
    return initial * power(options.gamma, count_up_to(options.milestones, step));
  };
}

Schedule ExponentialLR::schedule(ExponentialLROptions options, Where where) {
  const CallSite site(where);
  check_not_negative("ExponentialLR", "gamma", options.gamma);
  return
      [options](double initial, std::int64_t step) { return initial * power(options.gamma, step); };
}

Schedule CosineAnnealingLR::schedule(CosineAnnealingLROptions options, Where where) {
  const CallSite site(where);
  check_steps("CosineAnnealingLR", "t_max", options.t_max);
  check_not_negative("CosineAnnealingLR", "eta_min", options.eta_min);
  return [options](double initial, std::int64_t step) {
    return cosine(initial, options.eta_min, ratio(step, options.t_max));
  };
}

Schedule CosineAnnealingWarmRestarts::schedule(CosineAnnealingWarmRestartsOptions options,
                                               Where where) {
  const CallSite site(where);
  check_steps("CosineAnnealingWarmRestarts", "t_0", options.t_0);
  check_steps("CosineAnnealingWarmRestarts", "t_mult", options.t_mult);
  check_not_negative("CosineAnnealingWarmRestarts", "eta_min", options.eta_min);
  return [options](double initial, std::int64_t step) {
    std::int64_t length = options.t_0;
    if (options.t_mult == 1) step %= length;
    while (step >= length) {
      step -= length;
      length *= options.t_mult;
    }
    return cosine(initial, options.eta_min, ratio(step, length));
  };
}

Schedule OneCycleLR::schedule(OneCycleLROptions options, Where where) {
  const CallSite site(where);
  static constexpr const char* kName = "OneCycleLR";
  check_not_negative(kName, "max_lr", options.max_lr);
  check_steps(kName, "total_steps", options.total_steps);
  CAPSTAN_CHECK(options.pct_start >= 0.0 && options.pct_start <= 1.0, ValueError, kName,
                ": pct_start must be in [0, 1], got ", options.pct_start);
  CAPSTAN_CHECK(options.div_factor > 0.0 && options.final_div_factor > 0.0, ValueError, kName,
                ": div_factor and final_div_factor must be positive, got ", options.div_factor,
                " and ", options.final_div_factor);
  return [options, phases = one_cycle_phases(options)](double, std::int64_t step) {
    CAPSTAN_CHECK(step <= options.total_steps, ValueError, kName, ": step ", step,
                  " is beyond the ", options.total_steps,
                  " of the cycle; give it the total_steps of the whole training");
    const auto position = static_cast<double>(step);
    std::size_t i = 0;
    while (i + 1 < phases.size() && position > phases[i].end) ++i;
    const double begin = i == 0 ? 0.0 : phases[i - 1].end;
    const Phase& phase = phases[i];
    const double part = (position - begin) / (phase.end - begin);
    if (options.anneal_strategy == Annealing::cosine) {
      return cosine(phase.start_rate, phase.end_rate, part);
    }
    return phase.start_rate + part * (phase.end_rate - phase.start_rate);
  };
}

Schedule LinearLR::schedule(LinearLROptions options, Where where) {
  const CallSite site(where);
  CAPSTAN_CHECK(options.start_factor > 0.0 && options.start_factor <= 1.0, ValueError,
                "LinearLR: start_factor must be in (0, 1], got ", options.start_factor);
  CAPSTAN_CHECK(options.end_factor >= 0.0 && options.end_factor <= 1.0, ValueError,
                "LinearLR: end_factor must be in [0, 1], got ", options.end_factor);
  check_steps("LinearLR", "total_iters", options.total_iters);
  return [options](double initial, std::int64_t step) {
    const double part = ratio(std::min(step, options.total_iters), options.total_iters);
    return initial * (options.start_factor + part * (options.end_factor - options.start_factor));
  };
}

Schedule LambdaLR::schedule(std::function<double(std::int64_t step)> factor) {
  return [factor = std::move(factor)](double initial, std::int64_t step) {
    return initial * factor(step);
  };
}

Schedule SequentialLR::schedule(std::vector<Schedule> schedules,
                                std::vector<std::int64_t> milestones, Where where) {
  const CallSite site(where);
  CAPSTAN_CHECK(schedules.size() == milestones.size() + 1, ValueError,
                "SequentialLR: needs one milestone fewer than schedules, got ", milestones.size(),
                " milestones for ", schedules.size(), " schedules");
  check_ascending("SequentialLR", milestones);
  return [schedules = std::move(schedules), milestones = std::move(milestones)](double initial,
                                                                                std::int64_t step) {
    const auto i = static_cast<std::size_t>(count_up_to(milestones, step));
    return schedules[i](initial, i == 0 ? step : step - milestones[i - 1]);
  };
}

}  // namespace capstan::nn

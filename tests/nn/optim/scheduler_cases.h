#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/optim/reduce_lr_on_plateau.h"
#include "nn/optim/scheduler.h"

namespace capstan::testing {

/// Makes a scheduler and returns its `step`, as of step number n (from 0 on).
struct SchedulerCase {
  std::string name;
  std::function<std::function<void(std::int64_t)>(nn::Optimizer&)> make;
};

template <typename Make>
[[nodiscard]] SchedulerCase scheduler_case(const char* name, Make make) {
  return {name, [make](nn::Optimizer& optimizer) -> std::function<void(std::int64_t)> {
            return
                [scheduler = std::shared_ptr(make(optimizer))](std::int64_t) { scheduler->step(); };
          }};
}

/// What tests/golden/schedulers.py makes; `steps` is the length of one cycle.
[[nodiscard]] inline std::vector<SchedulerCase> scheduler_cases(std::int64_t steps) {
  using namespace nn;
  using std::make_unique;
  return {
      scheduler_case("step",
                     [](Optimizer& o) {
                       return make_unique<StepLR>(o, StepLROptions{.step_size = 4, .gamma = 0.5});
                     }),
      scheduler_case("multi_step",
                     [](Optimizer& o) {
                       return make_unique<MultiStepLR>(
                           o, MultiStepLROptions{.milestones = {3, 7, 7, 12}, .gamma = 0.3});
                     }),
      scheduler_case("exponential",
                     [](Optimizer& o) {
                       return make_unique<ExponentialLR>(o, ExponentialLROptions{.gamma = 0.9});
                     }),
      scheduler_case("cosine",
                     [](Optimizer& o) {
                       return make_unique<CosineAnnealingLR>(
                           o, CosineAnnealingLROptions{.t_max = 10, .eta_min = 0.01});
                     }),
      scheduler_case("warm_restarts",
                     [](Optimizer& o) {
                       return make_unique<CosineAnnealingWarmRestarts>(
                           o, CosineAnnealingWarmRestartsOptions{
                                  .t_0 = 3, .t_mult = 2, .eta_min = 0.01});
                     }),
      scheduler_case("one_cycle",
                     [steps](Optimizer& o) {
                       return make_unique<OneCycleLR>(
                           o, OneCycleLROptions{.max_lr = 0.8, .total_steps = steps});
                     }),
      scheduler_case("one_cycle_linear",
                     [steps](Optimizer& o) {
                       return make_unique<OneCycleLR>(
                           o, OneCycleLROptions{.max_lr = 0.8,
                                                .total_steps = steps,
                                                .anneal_strategy = Annealing::linear,
                                                .three_phase = true});
                     }),
      scheduler_case("linear",
                     [](Optimizer& o) {
                       return make_unique<LinearLR>(
                           o, LinearLROptions{
                                  .start_factor = 0.25, .end_factor = 0.75, .total_iters = 6});
                     }),
      scheduler_case("lambda",
                     [](Optimizer& o) {
                       return make_unique<LambdaLR>(o, [](std::int64_t step) {
                         return 1.0 / (1.0 + static_cast<double>(step));
                       });
                     }),
      scheduler_case("sequential",
                     [](Optimizer& o) {
                       return make_unique<SequentialLR>(
                           o,
                           std::vector{LinearLR::schedule({.start_factor = 0.1}),
                                       CosineAnnealingLR::schedule({.t_max = 10}),
                                       ExponentialLR::schedule({.gamma = 0.5})},
                           std::vector<std::int64_t>{5, 15});
                     }),
      {"plateau",
       [](Optimizer& o) -> std::function<void(std::int64_t)> {
         const auto scheduler = std::make_shared<ReduceLROnPlateau>(
             o,
             ReduceLROnPlateauOptions{.factor = 0.5, .patience = 2, .cooldown = 1, .min_lr = 0.02});
         return [scheduler](std::int64_t step) {
           static constexpr double kMetrics[] = {5.0, 4.0, 4.1, 4.2,    4.3, 3.0, 3.0, 3.1,
                                                 3.2, 3.3, 3.0, 2.9999, 2.0, 2.5, 2.5, 2.5};
           scheduler->step(kMetrics[step % 16]);
         };
       }},
  };
}

}  // namespace capstan::testing

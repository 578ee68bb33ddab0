#include "nn/optim/scheduler.h"

#include <doctest/doctest.h>

#include "framework/tensor/factory.h"
#include "graphs/capture_scope.h"
#include "graphs/captured_step.h"
#include "nn/optim/sgd.h"
#include "ops/creation.h"
#include "tests/nn/optim/scheduler_cases.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::for_each_device;
using testing::SchedulerCase;

namespace {

constexpr std::int64_t kSteps = 25;

struct Golden {
  const char* name;
  std::size_t group;
  std::vector<double> rates;  // of steps 0 to 24
};

const std::vector<Golden>& goldens() {
  static const std::vector<Golden> kGoldens = {
#include "tests/golden/schedulers.inc"
  };
  return kGoldens;
}

Tensor make_parameter(Device device = Device::cpu()) {
  const Tensor parameter = ones({1}, {.device = device}).set_requires_grad();
  parameter.set_grad(ones({1}, {.device = device}));
  return parameter;
}

}  // namespace

TEST_SUITE("nn/optim/scheduler") {
  TEST_CASE("the rates of every scheduler are PyTorch's, in each group") {
    std::size_t compared = 0;
    for (const SchedulerCase& scheduler : testing::scheduler_cases(kSteps)) {
      nn::SGD sgd({make_parameter()}, {.learning_rate = 0.4});
      sgd.add_param_group({make_parameter()}, {.learning_rate = 0.1});
      std::vector<double> rates[2];
      const auto step = scheduler.make(sgd);
      for (std::int64_t i = 0; i < kSteps; ++i) {
        for (std::size_t group : {0U, 1U}) rates[group].push_back(sgd.learning_rate(group));
        if (i + 1 < kSteps) step(i);
      }
      check_close(sgd.hyperparameters(1).slice(0, 0, 1), {rates[1].back()}, 0.0);
      for (const Golden& golden : goldens()) {
        if (scheduler.name != golden.name) continue;
        ++compared;
        CAPTURE(scheduler.name);
        const Tensor got = Tensor::from_vector({kSteps}, rates[golden.group]);
        check_close(got, golden.rates, 1e-13);
      }
    }
    CHECK(compared == goldens().size());
    CHECK(compared == 2 * testing::scheduler_cases(kSteps).size());
  }

  TEST_CASE("B3: a replayed step follows a scheduler, whose initial rate stays") {
    for_each_device([](Device device) {
      const Tensor p = make_parameter(device);
      nn::SGD sgd({p}, {.learning_rate = 1.0});
      nn::StepLR scheduler(sgd, {.step_size = 1, .gamma = 0.5});
      const void* const address = sgd.hyperparameters().raw_data();
      Graph graph(device);
      capture(graph, [&] { sgd.step(); });
      for (const double want : {0.0, -0.5, -0.75}) {
        graph.replay();
        check_close(p.detach(), {want}, 0.0);
        scheduler.step();
      }
      CHECK(sgd.hyperparameters().raw_data() == address);
      CHECK(scheduler.step_count() == 3);
      CHECK(scheduler.last_lr() == std::vector<double>{0.125});
    });
  }

  TEST_CASE("a scheduler in a recorded step is refused and stays where it was") {
    for_each_device([](Device device) {
      const Tensor p = make_parameter(device);
      nn::SGD sgd({p}, {.learning_rate = 1.0});
      nn::StepLR scheduler(sgd, {.step_size = 1, .gamma = 0.5});
      nn::ReduceLROnPlateau plateau(sgd, {.patience = 0});
      for (const int warmup : {0, 2}) {
        CapturedStep scheduled(device, [&] { scheduler.step(); }, {.warmup = warmup});
        CHECK_THROWS_WITH_AS(scheduled(), doctest::Contains("scheduler.step: not possible while"),
                             CaptureError);
        CapturedStep judged(device, [&] { plateau.step(1.0); }, {.warmup = warmup});
        CHECK_THROWS_AS(judged(), CaptureError);
      }
      CHECK(scheduler.step_count() == 0);
      CHECK(scheduler.last_lr() == std::vector<double>{1.0});
      CHECK(sgd.learning_rate() == 1.0);
      CHECK(plateau.best() > 1e300);
      check_close(sgd.hyperparameters(), {1.0, 0.0, 0.0, 0.0}, 0.0);
    });
  }

  TEST_CASE("state goes out and comes back, and the rates go on from there") {
    nn::SGD sgd({make_parameter()}, {.learning_rate = 1.0});
    nn::ExponentialLR scheduler(sgd, {.gamma = 0.5});
    scheduler.step();
    scheduler.step();
    nn::SGD other_sgd({make_parameter()}, {.learning_rate = 9.0});
    nn::ExponentialLR other(other_sgd, {.gamma = 0.5});
    other.load_state_dict(scheduler.state_dict());
    CHECK(other.step_count() == 2);
    CHECK(other_sgd.learning_rate() == 0.25);
    other.step();
    CHECK(other_sgd.learning_rate() == 0.125);

    nn::ReduceLROnPlateau plateau(sgd, {.factor = 0.5, .patience = 1});
    plateau.step(1.0);
    plateau.step(2.0);
    nn::ReduceLROnPlateau resumed(other_sgd, {.factor = 0.5, .patience = 1});
    resumed.load_state_dict(plateau.state_dict());
    resumed.step(2.0);
    CHECK(other_sgd.learning_rate() == 0.0625);
    CHECK_THROWS_AS(resumed.load_state_dict(scheduler.state_dict()), ValueError);
  }

  TEST_CASE("a plateau of a metric to be maximised, with an absolute threshold") {
    nn::SGD sgd({make_parameter()}, {.learning_rate = 1.0});
    nn::ReduceLROnPlateau plateau(sgd, {.mode = nn::PlateauMode::max,
                                        .factor = 0.5,
                                        .patience = 0,
                                        .threshold = 0.25,
                                        .threshold_mode = nn::ThresholdMode::abs});
    plateau.step(1.0);
    CHECK(sgd.learning_rate() == 1.0);
    plateau.step(1.25);  // not more than the threshold
    CHECK(sgd.learning_rate() == 0.5);
    plateau.step(1.5);
    CHECK(sgd.learning_rate() == 0.5);
    CHECK(plateau.best() == 1.5);
  }

  TEST_CASE("bad options and rates are refused, and nothing changes") {
    nn::SGD sgd({make_parameter()}, {.learning_rate = 0.5});
    using doctest::Contains;
    CHECK_THROWS_WITH_AS(nn::StepLR(sgd, {.step_size = 0}),
                         Contains("StepLR: step_size must be at least 1, got 0"), ValueError);
    CHECK_THROWS_WITH_AS(nn::ExponentialLR(sgd, {.gamma = -1.0}),
                         Contains("ExponentialLR: gamma must be at least 0, got -1"), ValueError);
    CHECK_THROWS_WITH_AS(nn::MultiStepLR(sgd, {.milestones = {4, 2}}),
                         Contains("MultiStepLR: milestones must be ascending and at least 0, got 2 "
                                  "after 4"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::LinearLR(sgd, {.start_factor = 0.0}),
                         Contains("LinearLR: start_factor must be in (0, 1], got 0"), ValueError);
    CHECK_THROWS_WITH_AS(nn::SequentialLR(sgd, {}, {}),
                         Contains("SequentialLR: needs one milestone fewer than schedules, got 0 "
                                  "milestones for 0 schedules"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::OneCycleLR(sgd, {.pct_start = 2.0}),
                         Contains("OneCycleLR: pct_start must be in [0, 1], got 2"), ValueError);
    CHECK_THROWS_WITH_AS(nn::ReduceLROnPlateau(sgd, {.factor = 1.0}),
                         Contains("ReduceLROnPlateau: factor must be in [0, 1), got 1"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::LambdaLR(sgd, [](std::int64_t) { return -1.0; }),
                         Contains("scheduler: the schedule gives -0.5 for step 0"), ValueError);
    CHECK(sgd.learning_rate() == 0.5);

    nn::OneCycleLR cycle(sgd, {.max_lr = 1.0, .total_steps = 2, .pct_start = 0.75});
    cycle.step();
    cycle.step();
    const double rate = sgd.learning_rate();
    CHECK_THROWS_WITH_AS(cycle.step(), Contains("OneCycleLR: step 3 is beyond the 2 of the cycle"),
                         ValueError);
    CHECK(cycle.step_count() == 2);
    CHECK(sgd.learning_rate() == rate);

    sgd.add_param_group({make_parameter()}, {});
    CHECK_THROWS_WITH_AS(cycle.step(), Contains("make it after adding them"), StateError);
  }
}

#include <doctest/doctest.h>

#include "autograd/arithmetic.h"
#include "autograd/math.h"
#include "autograd/reduce.h"
#include "framework/tensor/factory.h"
#include "graphs/captured_step.h"
#include "nn/optim/clip.h"
#include "nn/optim/ema.h"
#include "tests/nn/optim/optimizer_cases.h"
#include "tests/nn/optim/scheduler_cases.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;

namespace {

constexpr std::int64_t kSteps = 60;

/// 60 steps of two parameters in one group, clipped, averaged and scheduled; what they leave.
std::vector<Tensor> train(Device device, const OptimizerCase& rule, const SchedulerCase& schedule,
                          bool replayed) {
  const Tensor weight = random_tensor({7, 3}, 1, DType::float32, device).set_requires_grad();
  const Tensor bias = random_tensor({3}, 2, DType::float32, device).set_requires_grad();
  const auto optimizer = rule.make({weight, bias});
  const auto next_rate = schedule.make(*optimizer);
  nn::EMA ema({weight, bias}, 0.9);
  const Tensor x = random_tensor({7, 3}, 3, DType::float32, device);
  const auto body = [&](const Tensor& scale) {
    optimizer->zero_grad();
    const Tensor loss = mean(square(tanh(weight * x + bias) * scale - 0.25));
    loss.backward();
    (void)nn::clip_grad_norm_({weight, bias}, 0.05);
    optimizer->step();
    ema.update();
    return loss;
  };
  CapturedStep step(device, body);
  Tensor loss;
  for (std::int64_t i = 0; i < kSteps; ++i) {
    const Tensor scale =
        random_tensor({3}, 100 + static_cast<std::uint64_t>(i), DType::float32, device);
    loss = replayed ? step(scale) : body(scale).detach();
    if (i + 1 < kSteps) next_rate(i);
  }
  if (replayed) CHECK(step.stats().captures == 1);
  CHECK(optimizer->step_count() == kSteps);
  std::vector<Tensor> left{loss,        weight.detach(),   bias.detach(),    weight.grad(),
                           bias.grad(), ema.averages()[0], ema.averages()[1]};
  for (const auto& [name, tensor] : optimizer->state_dict()) left.push_back(tensor);
  return left;
}

}  // namespace

TEST_SUITE("graphs/optimizer_schedule") {
  TEST_CASE("60 replayed steps equal 60 eager ones, for every optimiser with every scheduler") {
    for_each_device([](Device device) {
      for (const OptimizerCase& rule : optimizer_cases()) {
        for (const SchedulerCase& schedule : scheduler_cases(kSteps)) {
          CAPTURE(rule.name);
          CAPTURE(schedule.name);
          const std::vector<Tensor> got = train(device, rule, schedule, /*replayed=*/true);
          const std::vector<Tensor> want = train(device, rule, schedule, /*replayed=*/false);
          REQUIRE(got.size() == want.size());
          for (std::size_t i = 0; i < got.size(); ++i) check_identical(got[i], want[i]);
        }
      }
    });
  }
}

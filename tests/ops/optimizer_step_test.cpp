#include "ops/optimizer_step.h"

#include <cmath>

#include "framework/tensor/factory.h"
#include "ops/kernels.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using ops::ParameterSlot;
using testing::check_close;
using testing::for_each_device;
using testing::tolerance_for;

Tensor doubles(const std::vector<double>& values, Device device) {
  return Tensor::from_vector({static_cast<std::int64_t>(values.size())}, values, device);
}

Tensor step_counter(std::int64_t value, Device device) {
  return Tensor::from_vector<std::int64_t>({}, {value}, device);
}

struct AdamState {
  double p;
  double m = 0.0;
  double v = 0.0;
};

/// The rule as the papers write it.
void adam_by_hand(AdamState& s, double g, int t, double rate, double decay, bool decoupled) {
  if (decoupled) s.p -= rate * decay * s.p;
  if (!decoupled) g += decay * s.p;
  s.m = 0.9 * s.m + 0.1 * g;
  s.v = 0.99 * s.v + 0.01 * g * g;
  const double m = s.m / (1.0 - std::pow(0.9, t));
  const double v = s.v / (1.0 - std::pow(0.99, t));
  s.p -= rate * m / (std::sqrt(v) + 1e-8);
}

}  // namespace

TEST_SUITE("ops/optimizer_step") {
  TEST_CASE("plain SGD subtracts the scaled gradient and counts the step") {
    for_each_device([](Device device) {
      const Tensor p = doubles({1, 2}, device);
      const Tensor step = step_counter(4, device);
      ops::sgd_step({{p, doubles({10, -10}, device), {}, {}}}, doubles({0.1, 0, 0, 0}, device),
                    step, false, false);
      check_close(p, {0, 3}, 1e-12);
      CHECK(step.item<std::int64_t>() == 5);
    });
  }

  TEST_CASE("momentum, Nesterov, weight decay and maximising follow the rule") {
    for_each_device([](Device device) {
      const auto run = [&](bool nesterov, bool maximize, double decay) {
        const Tensor p = doubles({1}, device);
        const Tensor v = doubles({0}, device);
        const Tensor step = step_counter(0, device);
        const Tensor hyper = doubles({0.1, 0.5, decay, 0}, device);
        for (int i = 0; i < 2; ++i) {
          ops::sgd_step({{p, doubles({2}, device), v, {}}}, hyper, step, nesterov, maximize);
        }
        return p.item<double>();
      };
      // v = 2, then 3: p = 1 - 0.2 - 0.3.
      CHECK(run(false, false, 0) == doctest::Approx(0.5));
      CHECK(run(false, true, 0) == doctest::Approx(1.5));
      // d + 0.5 v = 3, then 3.5.
      CHECK(run(true, false, 0) == doctest::Approx(0.35));
      // d = 2.5, p = 0.75; d = 2.375, v = 3.625, p = 0.3875.
      CHECK(run(false, false, 0.5) == doctest::Approx(0.3875));
    });
  }

  TEST_CASE("Adam and AdamW follow the papers over several steps, in both dtypes") {
    for_each_device([](Device device) {
      for (const bool decoupled : {false, true}) {
        CAPTURE(decoupled);
        const Tensor hyper = doubles({0.01, 0.9, 0.99, 1e-8, 0.1}, device);
        const Tensor step = step_counter(0, device);
        const Tensor step32 = step_counter(0, device);
        const Tensor p = doubles({1, -2, 3}, device);
        const ParameterSlot slot{p, doubles({0.5, -1, 4}, device), zeros_like(p), zeros_like(p)};
        const Tensor q = Tensor::from_vector<float>({3}, {1, -2, 3}, device);
        const Tensor g = Tensor::from_vector<float>({3}, {0.5f, -1, 4}, device);
        const ParameterSlot slot32{q, g, zeros_like(q), zeros_like(q)};
        AdamState want[3] = {{1}, {-2}, {3}};
        const double grads[3] = {0.5, -1, 4};
        for (int t = 1; t <= 5; ++t) {
          ops::adam_step({slot}, hyper, step, decoupled, false);
          ops::adam_step({slot32}, hyper, step32, decoupled, false);
          for (int i = 0; i < 3; ++i) adam_by_hand(want[i], grads[i], t, 0.01, 0.1, decoupled);
        }
        check_close(p, {want[0].p, want[1].p, want[2].p}, tolerance_for(DType::float64, device));
        check_close(q, {want[0].p, want[1].p, want[2].p}, 1e-5);
        CHECK(step.item<std::int64_t>() == 5);
      }
    });
  }

  TEST_CASE("more parameters than one launch holds take one step together") {
    for_each_device([](Device device) {
      std::vector<ParameterSlot> slots;
      for (int i = 0; i < 2 * kMaxParameters + 3; ++i) {
        const Tensor p = doubles(std::vector<double>(static_cast<std::size_t>(i), 1.0), device);
        slots.push_back({p, doubles(p.to_vector<double>(), device), {}, {}});
      }
      const Tensor step = step_counter(0, device);
      ops::sgd_step(slots, doubles({0.25, 0, 0, 0}, device), step, false, false);
      CHECK(step.item<std::int64_t>() == 1);
      for (const ParameterSlot& slot : slots) {
        const auto count = static_cast<std::size_t>(slot.parameter.numel());
        check_close(slot.parameter, std::vector<double>(count, 0.75), 0);
      }
    });
  }

  TEST_CASE("a large parameter is updated to its last element") {
    for_each_device([](Device device) {
      constexpr std::size_t kCount = 300001;
      const Tensor p = doubles(std::vector<double>(kCount, 2.0), device);
      const Tensor small = doubles({5}, device);
      ops::sgd_step({{small, doubles({1}, device), {}, {}},
                     {p, doubles(std::vector<double>(kCount, 1.0), device), {}, {}}},
                    doubles({0.5, 0, 0, 0}, device), step_counter(0, device), false, false);
      check_close(p, std::vector<double>(kCount, 1.5), 0);
      check_close(small, {4.5}, 0);
    });
  }

  TEST_CASE("a step without parameters still counts") {
    for_each_device([](Device device) {
      const Tensor step = step_counter(0, device);
      ops::adam_step({}, doubles({1, 0.9, 0.99, 1e-8, 0}, device), step, false, false);
      CHECK(step.item<std::int64_t>() == 1);
    });
  }

  TEST_CASE("everything that is written counts as written") {
    for_each_device([](Device device) {
      const Tensor p = doubles({1}, device);
      const Tensor v = doubles({0}, device);
      const Tensor step = step_counter(0, device);
      const std::int64_t p_version = p.storage()->version();
      const std::int64_t v_version = v.storage()->version();
      const std::int64_t step_version = step.storage()->version();
      ops::sgd_step({{p, doubles({1}, device), v, {}}}, doubles({0.1, 0.9, 0, 0}, device), step,
                    false, false);
      CHECK(p.storage()->version() == p_version + 1);
      CHECK(v.storage()->version() == v_version + 1);
      CHECK(step.storage()->version() == step_version + 1);
    });
  }

  TEST_CASE("slots that do not fit are refused") {
    for_each_device([](Device device) {
      const Tensor p = doubles({1, 2}, device);
      const Tensor hyper = doubles({0.1, 0, 0, 0}, device);
      const Tensor step = step_counter(0, device);
      CHECK_THROWS_WITH_AS(
          ops::sgd_step({{p, doubles({1}, device), {}, {}}}, hyper, step, false, false),
          doctest::Contains("sgd_step: grad must have shape [2], got [1]"), ShapeError);
      CHECK_THROWS_WITH_AS(ops::sgd_step({{p, {}, {}, {}}}, hyper, step, false, false),
                           doctest::Contains("sgd_step: grad is undefined for a parameter"),
                           StateError);
      CHECK_THROWS_WITH_AS(
          ops::adam_step({{p, p, {}, {}}}, doubles({1, 1, 1, 1, 1}, device), step, false, false),
          doctest::Contains("adam_step: state1 is undefined for a parameter"), StateError);
      CHECK_THROWS_WITH_AS(ops::sgd_step({}, doubles({1}, device), step, false, false),
                           doctest::Contains("sgd_step: hyper must have shape [4], got [1]"),
                           ShapeError);
      check_close(p, {1, 2}, 0);
    });
  }
}

}  // namespace capstan

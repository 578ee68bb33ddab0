#include "nn/init.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "framework/tensor/factory.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::check_identical;
using testing::for_each_device;

namespace {

struct Moments {
  double low = 0.0;
  double high = 0.0;
  double mean = 0.0;
  double deviation = 0.0;
};

Moments moments_of(const Tensor& x) {
  const std::vector<double> values = x.to_vector<double>();
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  Moments moments{.low = *low, .high = *high};
  const double count = static_cast<double>(values.size());
  for (const double value : values) moments.mean += value / count;
  for (const double value : values) {
    moments.deviation += (value - moments.mean) * (value - moments.mean) / count;
  }
  moments.deviation = std::sqrt(moments.deviation);
  return moments;
}

/// Fan-in 50 * 4 = 200, fan-out 100 * 4 = 400, 20,000 elements.
Tensor make_weight(Device device = Device::cpu()) {
  return empty({100, 50, 2, 2}, {.device = device});
}

void check_uniform(const Tensor& x, double bound) {
  const Moments moments = moments_of(x);
  CHECK(moments.low >= -bound * 1.000001);
  CHECK(moments.low < -0.99 * bound);
  CHECK(moments.high <= bound * 1.000001);
  CHECK(moments.high > 0.99 * bound);
  CHECK(moments.deviation == doctest::Approx(bound / std::sqrt(3.0)).epsilon(0.02));
}

void check_normal(const Tensor& x, double deviation) {
  const Moments moments = moments_of(x);
  CHECK(std::abs(moments.mean) < 0.04 * deviation);
  CHECK(moments.deviation == doctest::Approx(deviation).epsilon(0.02));
  CHECK(moments.high > 3.0 * deviation);  // a normal tail, not a uniform one
}

}  // namespace

TEST_SUITE("nn/init") {
  TEST_CASE("constants fill a tensor that requires a gradient, without recording") {
    for_each_device([](Device device) {
      const Tensor x = empty({2, 2}, {.device = device});
      x.set_requires_grad();
      nn::init::constant_(x, 1.5);
      check_close(x, {1.5, 1.5, 1.5, 1.5}, 0.0);
      CHECK(x.is_leaf());
      nn::init::ones_(x);
      check_close(x, {1, 1, 1, 1}, 0.0);
      nn::init::zeros_(x);
      check_close(x, {0, 0, 0, 0}, 0.0);
    });
  }

  TEST_CASE("random initialisers have the documented spread") {
    for_each_device([](Device device) {
      const Generator generator(1, device);
      const Tensor x = make_weight(device);
      nn::init::uniform_(x, -0.5, 0.5, &generator);
      check_uniform(x, 0.5);
      nn::init::normal_(x, 0.0, 2.0, &generator);
      check_normal(x, 2.0);
      nn::init::kaiming_uniform_(x, {.generator = &generator});
      check_uniform(x, std::sqrt(2.0) * std::sqrt(3.0 / 200.0));
      nn::init::kaiming_normal_(x, {.fan = nn::init::Fan::out, .generator = &generator});
      check_normal(x, std::sqrt(2.0 / 400.0));
      nn::init::kaiming_normal_(x, {.negative_slope = 1.0, .generator = &generator});
      check_normal(x, std::sqrt(1.0 / 200.0));
      nn::init::xavier_uniform_(x, 2.0, &generator);
      check_uniform(x, 2.0 * std::sqrt(6.0 / 600.0));
      nn::init::xavier_normal_(x, 1.0, &generator);
      check_normal(x, std::sqrt(2.0 / 600.0));
    });
  }

  TEST_CASE("numbers continue the generator, and the default one without one") {
    const Tensor a = make_weight();
    const Tensor b = make_weight();
    const Generator generator(4);
    nn::init::normal_(a, 0.0, 1.0, &generator);
    nn::init::normal_(b, 0.0, 1.0, &generator);
    CHECK_FALSE(testing::identical(a, b));
    manual_seed(4);
    nn::init::normal_(b);
    check_identical(a, b);
  }

  TEST_CASE("fans need two axes, and bad ranges are refused") {
    CHECK_THROWS_WITH_AS(nn::init::kaiming_uniform_(empty({5})),
                         doctest::Contains("kaiming_uniform: fan-in and fan-out need at least 2 "
                                           "axes, got shape [5]"),
                         ShapeError);
    CHECK_THROWS_AS(nn::init::xavier_normal_(empty({})), ShapeError);
    CHECK_THROWS_AS(nn::init::uniform_(empty({2}), 1.0, -1.0), ValueError);
    nn::init::kaiming_normal_(empty({3, 0}));  // nothing to fill
  }
}

#include "ops/creation.h"

#include <algorithm>
#include <cmath>

#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;
using testing::check_identical;
using testing::for_each_device;

struct Moments {
  double mean;
  double variance;
};

Moments moments(const Tensor& x) {
  const std::vector<double> values = x.to_vector<double>();
  const auto count = static_cast<double>(values.size());
  double mean = 0.0;
  double variance = 0.0;
  for (const double value : values) mean += value / count;
  for (const double value : values) variance += (value - mean) * (value - mean) / count;
  return {mean, variance};
}

}  // namespace

TEST_SUITE("ops/creation") {
  TEST_CASE("constants have the asked shape, dtype and values") {
    for_each_device([](Device device) {
      check_close(full({2, 2}, 1.5, {.device = device}), {1.5, 1.5, 1.5, 1.5}, 0);
      check_close(ones({3}, {.dtype = DType::boolean, .device = device}), {1, 1, 1}, 0);
      const Tensor whole = full({}, -7, {.dtype = DType::int32, .device = device});
      CHECK(whole.item<std::int32_t>() == -7);
      CHECK(ones_like(whole).dtype() == DType::int32);
      check_close(eye(3, {.device = device}), {1, 0, 0, 0, 1, 0, 0, 0, 1}, 0);
      CHECK(eye(0, {.device = device}).shape() == Shape{0, 0});
      CHECK(full({0, 4}, 1, {.device = device}).numel() == 0);
      CHECK_THROWS_WITH_AS((void)full({2}, 300, {.dtype = DType::uint8, .device = device}),
                           doctest::Contains("full: a uint8 tensor cannot hold 300"), DTypeError);
    });
  }

  TEST_CASE("arange counts up, down and in fractions, and stops before its end") {
    for_each_device([](Device device) {
      const TensorOptions whole{.dtype = DType::int64, .device = device};
      const TensorOptions real{.dtype = DType::float64, .device = device};
      check_close(arange(0, 5, 1, whole), {0, 1, 2, 3, 4}, 0);
      check_close(arange(5, 0, -2, whole), {5, 3, 1}, 0);
      check_close(arange(0, 1, 0.25, real), {0, 0.25, 0.5, 0.75}, 0);
      CHECK(arange(3, 3, 1, whole).numel() == 0);
      CHECK(arange(3, 0, 1, whole).numel() == 0);
      CHECK(arange(0, 100000, 1, whole).to_vector<std::int64_t>().back() == 99999);
      CHECK_THROWS_WITH_AS(
          (void)arange(0, 5, 0, whole),
          doctest::Contains("arange: needs finite bounds and a step that is not 0"), ValueError);
      CHECK_THROWS_WITH_AS((void)arange(0, 5, 0.5, whole),
                           doctest::Contains("arange: a int64 tensor cannot hold 0.5"), DTypeError);
    });
  }

  TEST_CASE("uniform numbers are the Philox words in order") {
    for_each_device([](Device device) {
      constexpr std::uint64_t kSeed = 11;
      const Generator generator(kSeed, device);
      const std::vector<float> first = rand({7}, {.device = device}, &generator).to_vector<float>();
      const std::vector<float> next = rand({67}, {.device = device}, &generator).to_vector<float>();
      for (std::size_t i = 0; i < first.size(); ++i) {
        CHECK(first[i] == to_uniform(philox(kSeed, i / 4).word[i % 4]));
      }
      // Seven numbers took two whole blocks.
      for (std::size_t i = 0; i < next.size(); ++i) {
        CHECK(next[i] == to_uniform(philox(kSeed, 2 + i / 4).word[i % 4]));
      }
    });
  }

  TEST_CASE("distributions have their mean and variance") {
    for_each_device([](Device device) {
      const Generator generator(3, device);
      const Moments flat = moments(rand({100, 1000}, {.device = device}, &generator));
      CHECK(flat.mean == doctest::Approx(0.5).epsilon(0.01));
      CHECK(flat.variance == doctest::Approx(1.0 / 12).epsilon(0.02));
      const Moments bell =
          moments(randn({100, 1000}, {.dtype = DType::float64, .device = device}, &generator));
      CHECK(std::abs(bell.mean) < 0.015);
      CHECK(bell.variance == doctest::Approx(1.0).epsilon(0.02));
      const Tensor y = empty({100001}, {.device = device});
      ops::normal(y, 5.0, 0.5, generator);
      CHECK(moments(y).mean == doctest::Approx(5.0).epsilon(0.01));
      CHECK(moments(y).variance == doctest::Approx(0.25).epsilon(0.02));
      ops::bernoulli(y, 0.25, generator);
      CHECK(moments(y).mean == doctest::Approx(0.25).epsilon(0.03));
      ops::uniform(y, -2.0, -1.0, generator);
      const std::vector<float> values = y.to_vector<float>();
      CHECK(*std::min_element(values.begin(), values.end()) >= -2.0f);
      CHECK(*std::max_element(values.begin(), values.end()) < -1.0f);
    });
  }

  TEST_CASE("normal numbers are Box-Muller on pairs of words") {
    for_each_device([](Device device) {
      const Generator generator(21, device);
      const Tensor y = randn({3}, {.dtype = DType::float64, .device = device}, &generator);
      const PhiloxBlock block = philox(21, 0);
      const double u1 = (block.word[0] + 1.0) / 4294967296.0;
      const double angle = 2.0 * 3.14159265358979323846 * (block.word[1] / 4294967296.0);
      const double u3 = (block.word[2] + 1.0) / 4294967296.0;
      const double angle3 = 2.0 * 3.14159265358979323846 * (block.word[3] / 4294967296.0);
      const double radius = std::sqrt(-2.0 * std::log(u1));
      check_close(y,
                  {radius * std::cos(angle), radius * std::sin(angle),
                   std::sqrt(-2.0 * std::log(u3)) * std::cos(angle3)},
                  1e-12);
    });
  }

  TEST_CASE("one seed gives the same numbers again, two draws differ") {
    for_each_device([](Device device) {
      const Generator a(5, device);
      const Generator b(5, device);
      const Tensor first = randn({1001}, {.device = device}, &a);
      check_identical(first, randn({1001}, {.device = device}, &b));
      CHECK_FALSE(testing::identical(first, randn({1001}, {.device = device}, &a)));
    });
  }

  TEST_CASE("mistakes are refused") {
    for_each_device([](Device device) {
      const Generator generator(1, device);
      const Tensor y = empty({4}, {.device = device});
      CHECK_THROWS_WITH_AS(ops::bernoulli(y, 1.5, generator),
                           doctest::Contains("bernoulli: needs p in [0, 1], got 1.5"), ValueError);
      CHECK_THROWS_WITH_AS(ops::uniform(y, 2, 1, generator),
                           doctest::Contains("uniform: needs low <= high, got 2 and 1"),
                           ValueError);
      CHECK_THROWS_WITH_AS(ops::normal(y, 0, -1, generator),
                           doctest::Contains("normal: needs a deviation >= 0, got -1"), ValueError);
      CHECK_THROWS_WITH_AS((void)rand({2}, {.dtype = DType::int64, .device = device}, &generator),
                           doctest::Contains("rand: needs a floating dtype, got int64[2]"),
                           DTypeError);
    });
  }

  TEST_CASE("a generator of another device is refused") {
    if (!testing::needs_gpu()) return;
    const Generator generator(1, Device::cpu());
    CHECK_THROWS_WITH_AS((void)rand({2}, {.device = Device::gpu()}, &generator),
                         doctest::Contains("rand: the generator is on cpu, got a tensor on gpu:0"),
                         DeviceError);
  }
}

}  // namespace capstan

#include "nn/activations.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "autograd/reduce.h"
#include "framework/tensor/factory.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::check_identical;
using testing::for_each_device;

TEST_SUITE("nn/activations") {
  TEST_CASE("each module computes the function of its name") {
    for_each_device([](Device device) {
      const Tensor x = Tensor::from_vector({3}, std::vector<double>{-1.0, 0.0, 2.0}, device);
      constexpr double kTolerance = 1e-9;
      check_close(nn::ReLU()(x), {0.0, 0.0, 2.0}, kTolerance);
      check_close(nn::Tanh()(x), {-0.7615941560, 0.0, 0.9640275801}, kTolerance);
      check_close(nn::Sigmoid()(x), {0.2689414214, 0.5, 0.8807970780}, kTolerance);
      check_close(nn::GELU()(x), {-0.1586552539, 0.0, 1.9544997361}, kTolerance);
      check_close(nn::Softmax()(x), {0.0420100661, 0.1141951994, 0.8437947344}, kTolerance);
      CHECK(nn::Softmax(0)(x.reshape({3, 1})).shape() == Shape{3, 1});
      CHECK(nn::Flatten()(zeros({2, 3, 4}, {.device = device})).shape() == Shape{2, 12});
      CHECK(nn::Flatten(0, 1)(zeros({2, 3, 4}, {.device = device})).shape() == Shape{6, 4});
    });
  }

  TEST_CASE("Dropout drops and scales in training and passes through in evaluation") {
    for_each_device([](Device device) {
      const Generator generator(3, device);
      nn::Dropout dropout(0.25, &generator);
      const Tensor x = ones({4000}, {.device = device});
      const std::vector<double> values = dropout(x).to_vector<double>();
      const auto dropped = std::count(values.begin(), values.end(), 0.0);
      CHECK(dropped > 850);  // 1000 expected, deviation 27
      CHECK(dropped < 1150);
      CHECK(std::all_of(values.begin(), values.end(), [](double value) {
        return value == 0.0 || value == static_cast<double>(1.0f / 0.75f);
      }));
      dropout.eval();
      check_identical(dropout(x), x);
    });
  }

  TEST_CASE("Dropout draws from its own generator") {
    const Generator generator(3);
    nn::Dropout dropout(0.5, &generator);
    const Tensor x = ones({64});
    const GeneratorState before = default_generator(Device::cpu()).state();
    const Tensor first = dropout(x);
    CHECK(default_generator(Device::cpu()).state() == before);
    CHECK_FALSE(testing::identical(dropout(x), first));
    generator.manual_seed(3);
    check_identical(dropout(x), first);
  }

  TEST_CASE("Dropout refuses what is no probability") {
    CHECK_THROWS_WITH_AS(nn::Dropout(1.5),
                         doctest::Contains("dropout: p must be in [0, 1], got 1.5"), ValueError);
    CHECK_THROWS_AS(nn::Dropout(-0.1), ValueError);
  }
}

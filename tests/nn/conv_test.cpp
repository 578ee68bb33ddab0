#include "nn/conv.h"

#include <doctest/doctest.h>

#include <cmath>

#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::for_each_device;

TEST_SUITE("nn/conv") {
  TEST_CASE("computes its convolution with the options it was given") {
    for_each_device([](Device device) {
      nn::Conv2d layer(2, 4, {3, 1},
                       {.stride = {1, 2},
                        .padding = {1, 0},
                        .groups = 2,
                        .device = device,
                        .dtype = DType::float64});
      CHECK(layer.weight.shape() == Shape{4, 1, 3, 1});
      CHECK(layer.bias.shape() == Shape{4});
      const Tensor x = testing::random_tensor({2, 2, 5, 6}, 1, DType::float64, device);
      const Tensor y = layer(x);
      CHECK(y.shape() == Shape{2, 4, 5, 3});
      check_close(
          y.detach(),
          conv2d(x, layer.weight, layer.bias, {.stride = {1, 2}, .padding = {1, 0}, .groups = 2})
              .detach(),
          0);
      nn::Conv1d line(1, 1, 2, {.same = true, .bias = false, .device = device});
      CHECK_FALSE(line.bias.defined());
      line.load_state_dict({{"weight", Tensor::from_vector<float>({1, 1, 2}, {1, 10})}});
      check_close(line(Tensor::from_vector<float>({1, 1, 3}, {1, 2, 3}, device)), {21, 32, 3},
                  1e-6);
    });
  }

  TEST_CASE("initial values fill +-1/sqrt(fan-in) evenly") {
    const Generator generator(7);
    nn::Conv2d layer(8, 64, {5, 5}, {.groups = 2, .generator = &generator});
    const double bound = 0.1;  // 4 * 25 inputs
    double high = 0.0;
    double mean_square = 0.0;
    const std::vector<double> values = layer.weight.to_vector<double>();
    for (const double value : values) {
      high = std::max(high, std::abs(value));
      mean_square += value * value / static_cast<double>(values.size());
    }
    CHECK(high <= bound);
    CHECK(high > 0.99 * bound);
    CHECK(mean_square == doctest::Approx(bound * bound / 3).epsilon(0.05));
    for (const double value : layer.bias.to_vector<double>()) CHECK(std::abs(value) <= bound);
  }

  TEST_CASE("sizes and options are checked with their values") {
    CHECK_THROWS_WITH_AS(nn::Conv2d(0, 3, 3),
                         doctest::Contains("conv2d: channels must be at least 1, got in_channels 0 "
                                           "and out_channels 3"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::Conv2d(4, 3, 3, {.groups = 2}),
                         doctest::Contains("groups must divide in_channels and out_channels, got "
                                           "groups 2, in_channels 4 and out_channels 3"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::Conv1d(4, 3, 0),
                         doctest::Contains("conv1d: the kernel must be at least 1 long, got 0"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::Conv1d(4, 3, 3, {.stride = 2, .same = true}),
                         doctest::Contains("padding `same` needs a stride of 1"), ValueError);
    CHECK_THROWS_WITH_AS(nn::Conv2d(4, 3, 3, {.padding = -2}),
                         doctest::Contains("conv2d: padding must be at least 0, got -2 and -2"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::Conv2d(4, 3, 3, {.dtype = DType::int32}),
                         doctest::Contains("must be floating, got int32"), DTypeError);
    nn::Conv2d layer(4, 3, 3);
    CHECK_THROWS_AS((void)layer(zeros({2, 3, 5, 5})), ShapeError);
  }
}

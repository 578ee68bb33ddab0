#include "nn/layer_norm.h"

#include <doctest/doctest.h>

#include <cmath>

#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::for_each_device;

TEST_SUITE("nn/layer_norm") {
  TEST_CASE("modules normalise with what they were given") {
    for_each_device([](Device device) {
      const Tensor x = Tensor::from_vector<double>({1, 4}, {1, 3, 5, 13}, device);
      nn::LayerNorm layer({4}, {.eps = 4.25, .device = device, .dtype = DType::float64});
      layer.load_state_dict({{"weight", Tensor::from_vector<double>({4}, {1, 1, 1, 2})},
                             {"bias", Tensor::from_vector<double>({4}, {0, 0, 0, 1})}});
      // Mean 5.5, variance 20.75.
      check_close(layer(x), {-0.9, -0.5, -0.1, 4}, 1e-12);
      nn::GroupNorm group(2, 4, {.eps = 3.0, .device = device, .dtype = DType::float64});
      check_close(group(x), {-0.5, 0.5, -4 / std::sqrt(19.0), 4 / std::sqrt(19.0)}, 1e-12);
      nn::RMSNorm rms({4}, {.eps = 13.0, .device = device, .dtype = DType::float64});
      check_close(rms(x), {0.125, 0.375, 0.625, 1.625}, 1e-12);
    });
  }

  TEST_CASE("parameters have PyTorch's names, and can be left out") {
    CHECK(nn::LayerNorm({2, 3}).parameter_count() == 12);
    CHECK(nn::LayerNorm({2, 3}, {.bias = false}).named_parameters().size() == 1);
    CHECK(nn::LayerNorm({2, 3}, {.affine = false}).parameters().empty());
    CHECK(nn::GroupNorm(2, 4).named_parameters()[1].first == "bias");
    CHECK(nn::RMSNorm({4}).named_parameters()[0].first == "weight");
  }

  TEST_CASE("sizes and options are checked with their values") {
    CHECK_THROWS_WITH_AS(nn::LayerNorm({0}),
                         doctest::Contains("layer_norm: sizes must be at least 1, got [0]"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::RMSNorm({4}, {.eps = -1.0}),
                         doctest::Contains("rms_norm: eps must be positive, got -1"), ValueError);
    CHECK_THROWS_WITH_AS(nn::GroupNorm(3, 4),
                         doctest::Contains("groups must divide the channels, got 3 groups and 4 "
                                           "channels"),
                         ValueError);
    CHECK_THROWS_AS(nn::LayerNorm({4}, {.dtype = DType::int64}), DTypeError);
  }
}

#include "nn/pool.h"

#include <doctest/doctest.h>

#include "nn/container.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::for_each_device;

TEST_SUITE("nn/pool") {
  TEST_CASE("modules pool with the options they were given") {
    for_each_device([](Device device) {
      const Tensor x = Tensor::from_vector<float>({1, 1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}, device);
      check_close(nn::MaxPool2d(2)(x), {6, 8}, 0);
      check_close(nn::MaxPool2d(2, {.stride = 1})(x), {6, 7, 8}, 0);
      check_close(nn::AvgPool2d({1, 2}, {.padding = {0, 1}})(x), {0.5, 2.5, 2, 2.5, 6.5, 4}, 0);
      nn::Sequential model(nn::MaxPool2d({1, 2}), nn::AdaptiveAvgPool2d(1));
      check_close(model(x), {5.0}, 0);
      CHECK(model.parameters().empty());
    });
  }
}

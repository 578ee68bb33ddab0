#include "nn/linear.h"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/reduce.h"
#include "framework/runtime/runtime.h"
#include "framework/tensor/factory.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::check_identical;
using testing::for_each_device;
using testing::tolerance_for;

TEST_SUITE("nn/linear") {
  TEST_CASE("computes x W^T + b and its gradients") {
    for_each_device([](Device device) {
      nn::Linear layer(2, 3, {.device = device});
      layer.load_state_dict(
          {{"weight", Tensor::from_vector({3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6})},
           {"bias", Tensor::from_vector({3}, std::vector<float>{10, 20, 30})}});
      const Tensor x = Tensor::from_vector({2, 2}, std::vector<float>{1, 1, 2, -1}, device);
      x.set_requires_grad();
      const double tolerance = tolerance_for(DType::float32, device);
      const Tensor y = layer(x);
      check_close(y, {13, 27, 41, 10, 22, 34}, tolerance);
      sum(y).backward();
      check_close(layer.weight.grad(), {3, 0, 3, 0, 3, 0}, tolerance);
      check_close(layer.bias.grad(), {2, 2, 2}, tolerance);
      check_close(x.grad(), {9, 12, 9, 12}, tolerance);
    });
  }

  TEST_CASE("leading axes pass through, and bias can be left out") {
    nn::Linear layer(4, 3, {.bias = false, .dtype = DType::float64});
    CHECK_FALSE(layer.bias.defined());
    CHECK(layer.parameter_count() == 12);
    CHECK(layer.named_parameters().size() == 1);
    const Tensor y = layer(zeros({2, 5, 4}, {.dtype = DType::float64}));
    CHECK(y.shape() == Shape{2, 5, 3});
    CHECK(sum(y).item() == 0.0);
  }

  TEST_CASE("initial values fill +-1/sqrt(in) evenly") {
    const Generator generator(7);
    nn::Linear layer(100, 200, {.generator = &generator});
    const std::vector<double> values = layer.weight.to_vector<double>();
    double low = 0.0;
    double high = 0.0;
    double mean = 0.0;
    double mean_square = 0.0;
    const double count = static_cast<double>(values.size());
    for (const double value : values) {
      low = std::min(low, value);
      high = std::max(high, value);
      mean += value / count;
      mean_square += value * value / count;
    }
    CHECK(low >= -0.1);
    CHECK(low < -0.099);
    CHECK(high <= 0.1);
    CHECK(high > 0.099);
    CHECK(std::abs(mean) < 0.002);  // 5 deviations: 5 * 0.0577 / sqrt(20000)
    CHECK(mean_square == doctest::Approx(0.01 / 3).epsilon(0.03));
    for (const double value : layer.bias.to_vector<double>()) CHECK(std::abs(value) <= 0.1);
  }

  TEST_CASE("one seed gives one model, from a generator or the default one") {
    const Generator a(11);
    const Generator b(11);
    nn::Linear first(3, 4, {.generator = &a});
    nn::Linear second(3, 4, {.generator = &b});
    nn::Linear next(3, 4, {.generator = &b});
    check_identical(first.weight.detach(), second.weight.detach());
    check_identical(first.bias.detach(), second.bias.detach());
    CHECK_FALSE(testing::identical(first.weight.detach(), next.weight.detach()));

    manual_seed(11);
    nn::Linear third(3, 4);
    check_identical(first.weight.detach(), third.weight.detach());
  }

  TEST_CASE("one seed gives identical weights on CPU and GPU") {
    if (!testing::needs_gpu()) return;
    manual_seed(5);
    nn::Linear on_cpu(37, 21);
    manual_seed(5);
    nn::Linear on_gpu(37, 21, {.device = Device::gpu()});
    CHECK(on_gpu.weight.device() == Device::gpu());
    check_identical(on_gpu.weight.detach().to(Device::cpu()), on_cpu.weight.detach());
    check_identical(on_gpu.bias.detach().to(Device::cpu()), on_cpu.bias.detach());
  }

  TEST_CASE("sizes and dtypes are checked with their values") {
    CHECK_THROWS_WITH_AS(nn::Linear(0, 3),
                         doctest::Contains("linear: both sizes must be at least 1, got "
                                           "in_features 0 and out_features 3"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::Linear(3, 3, {.dtype = DType::int64}),
                         doctest::Contains("must be floating, got int64"), DTypeError);
    nn::Linear layer(4, 3);
    CHECK_THROWS_WITH_AS((void)layer(zeros({2, 5})), doctest::Contains("[2, 5]"), ShapeError);
    CHECK_THROWS_WITH_AS((void)layer(zeros({2, 5})), doctest::Contains("[3, 4]"), ShapeError);
    CHECK_THROWS_AS((void)layer(zeros({2, 4}, {.dtype = DType::float64})), DTypeError);
  }
}

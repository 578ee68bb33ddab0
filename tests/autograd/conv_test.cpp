#include "autograd/conv.h"

#include "autograd/autocast.h"
#include "autograd/grad_check.h"
#include "autograd/reduce.h"
#include "framework/core/counters.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::check_identical;
using testing::for_each_device;
using testing::random_tensor;
using testing::tolerance_for;

namespace {

struct Golden {
  Shape x_shape, weight_shape, y_shape;
  Conv2dOptions options;
  std::vector<double> x, weight, bias, grad, y, x_grad, weight_grad, bias_grad;
};
const std::vector<Golden> kGolden = {
#include "tests/golden/conv.inc"
};

Tensor leaf(const Shape& shape, std::uint64_t seed, Device device) {
  return random_tensor(shape, seed, DType::float64, device).set_requires_grad();
}

}  // namespace

TEST_SUITE("autograd/conv") {
  TEST_CASE("results and gradients agree with PyTorch") {
    for_each_device([](Device device) {
      CHECK(kGolden.size() == 7);
      for (const Golden& want : kGolden) {
        CAPTURE(want.weight_shape);
        const Tensor x = Tensor::from_vector(want.x_shape, want.x, device).set_requires_grad();
        const Tensor weight =
            Tensor::from_vector(want.weight_shape, want.weight, device).set_requires_grad();
        const Tensor bias =
            Tensor::from_vector({want.weight_shape[0]}, want.bias, device).set_requires_grad();
        const double tolerance = tolerance_for(DType::float64, device);
        const Tensor y = conv2d(x, weight, bias, want.options);
        CHECK(y.shape() == want.y_shape);
        check_close(y, want.y, tolerance);
        y.backward(Tensor::from_vector(want.y_shape, want.grad, device));
        check_close(x.grad(), want.x_grad, tolerance);
        check_close(weight.grad(), want.weight_grad, tolerance);
        check_close(bias.grad(), want.bias_grad, tolerance);
      }
    });
  }

  TEST_CASE("gradients and their gradients agree with central differences") {
    for_each_device([](Device device) {
      const std::vector<Conv2dOptions> choices = {
          {.padding = 1},
          {.stride = {2, 1}, .padding = {0, 1}, .dilation = {1, 2}},
          {.padding = Padding2d::same(), .groups = 2},
      };
      for (const Conv2dOptions& options : choices) {
        const std::vector<Tensor> inputs{leaf({2, 2, 4, 4}, 1, device),
                                         leaf({2, 2 / options.groups, 2, 2}, 2, device),
                                         leaf({2}, 3, device)};
        const auto function = [&](const std::vector<Tensor>& in) {
          return std::vector<Tensor>{conv2d(in[0], in[1], in[2], options)};
        };
        const GradCheckResult first = grad_check(function, inputs);
        CHECK_MESSAGE(first.ok, first.message);
        const GradCheckResult second = grad_grad_check(function, inputs);
        CHECK_MESSAGE(second.ok, second.message);
      }
    });
  }

  TEST_CASE("conv1d is conv2d of an image of height 1, with its gradients") {
    for_each_device([](Device device) {
      const Tensor x = Tensor::from_vector<double>({1, 1, 4}, {1, 2, 3, 4}, device);
      const Tensor weight = Tensor::from_vector<double>({1, 1, 2}, {1, 10}, device);
      check_close(conv1d(x, weight), {21, 32, 43}, 1e-12);
      check_close(conv1d(x, weight, {}, {.stride = 2, .padding = 1}), {10, 32, 4}, 1e-12);
      check_close(conv1d(x, weight, {}, {.same = true}), {21, 32, 43, 4}, 1e-12);
      const auto function = [](const std::vector<Tensor>& in) {
        return std::vector<Tensor>{
            conv1d(in[0], in[1], in[2], {.stride = 2, .padding = 1, .dilation = 2})};
      };
      const GradCheckResult result = grad_check(
          function, {leaf({2, 3, 7}, 1, device), leaf({4, 3, 3}, 2, device), leaf({4}, 3, device)});
      CHECK_MESSAGE(result.ok, result.message);
    });
  }

  TEST_CASE("only what is needed is computed and kept") {
    const Tensor x = random_tensor({2, 2, 4, 4}, 1, DType::float64, Device::cpu());
    const Tensor weight = leaf({3, 2, 3, 3}, 2, Device::cpu());
    const Tensor y = conv2d(x, weight);
    const Tensor g = ones(y.shape(), {.dtype = DType::float64});
    const std::int64_t before = counters().dispatches;
    y.backward(g);
    CHECK(counters().dispatches - before == 1);

    const Tensor start = leaf({2, 2, 4, 4}, 1, Device::cpu());
    const Tensor copy = start.clone();
    const Tensor fixed = weight.detach();
    const Tensor z = conv2d(copy, fixed);
    CHECK(copy.impl()->use_count() == 1);
  }

  TEST_CASE("Autocast lowers a convolution, and gradients come back in their own dtype") {
    for_each_device([](Device device) {
      const Tensor x = random_tensor({2, 2, 4, 4}, 1, DType::float32, device).set_requires_grad();
      const Tensor weight =
          random_tensor({3, 2, 3, 3}, 2, DType::float32, device).set_requires_grad();
      Tensor y;
      {
        const Autocast scope(device.type, {.dtype = DType::bfloat16});
        y = conv2d(x, weight);
      }
      CHECK(y.dtype() == DType::bfloat16);
      sum(y).backward();
      CHECK(x.grad().dtype() == DType::float32);
      CHECK(weight.grad().dtype() == DType::float32);
    });
  }

  TEST_CASE("what cannot be is refused by name") {
    const Tensor x = zeros({1, 1, 4, 4});
    const Tensor weight = zeros({1, 1, 3, 3});
    CHECK_THROWS_WITH_AS(
        (void)conv2d(x, weight, {}, {.stride = 2, .padding = Padding2d::same()}),
        doctest::Contains("conv2d: padding `same` needs a stride of 1, got 2 and 2"), ValueError);
    CHECK_THROWS_WITH_AS((void)conv2d(x, weight, {}, {.padding = -1}),
                         doctest::Contains("padding must be at least 0, got -1 and -1"),
                         ValueError);
    CHECK_THROWS_WITH_AS((void)conv1d(x, weight),
                         doctest::Contains("conv1d: x must be [batch, channels, length] and weight "
                                           "[out_channels, channels / groups, kernel], got shapes "
                                           "[1, 1, 4, 4] and [1, 1, 3, 3]"),
                         ShapeError);
  }
}

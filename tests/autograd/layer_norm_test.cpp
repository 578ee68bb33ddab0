#include "autograd/arithmetic.h"
#include "autograd/autocast.h"
#include "autograd/grad_check.h"
#include "autograd/norm.h"
#include "framework/tensor/factory.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::for_each_device;
using testing::random_tensor;
using testing::tolerance_for;

namespace {

struct Golden {
  std::vector<double> x, weight, bias, grad, y, x_grad, weight_grad, bias_grad{};
};
#include "tests/golden/layer_norm.inc"

using Function = std::function<Tensor(const Tensor& x, const Tensor& weight, const Tensor& bias)>;

Tensor layer(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return layer_norm(x, weight.shape(), weight, bias, 1e-3);
}
Tensor group(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return group_norm(x, 2, weight, bias, 1e-3);
}
Tensor rms(const Tensor& x, const Tensor& weight, const Tensor&) {
  return rms_norm(x, weight.shape(), weight);
}

void agree(const Golden& want, const Function& norm, const Shape& shape, const Shape& sizes,
           Device device) {
  const double tolerance = tolerance_for(DType::float64, device);
  const Tensor x = Tensor::from_vector(shape, want.x, device).set_requires_grad();
  const Tensor weight = Tensor::from_vector(sizes, want.weight, device).set_requires_grad();
  const Tensor bias = Tensor::from_vector(sizes, want.bias, device).set_requires_grad();
  const Tensor y = norm(x, weight, bias);
  check_close(y, want.y, tolerance);
  y.backward(Tensor::from_vector(shape, want.grad, device));
  check_close(x.grad(), want.x_grad, tolerance);
  check_close(weight.grad(), want.weight_grad, tolerance);
  CHECK(bias.grad().defined() == !want.bias_grad.empty());
  if (bias.grad().defined()) check_close(bias.grad(), want.bias_grad, tolerance);
}

}  // namespace

TEST_SUITE("autograd/layer_norm") {
  TEST_CASE("layer_norm, group_norm and rms_norm agree with PyTorch, gradients too") {
    for_each_device([](Device device) {
      agree(kLayer, layer, {2, 2, 3}, {2, 3}, device);
      agree(kGroup, group, {2, 4, 3}, {4}, device);
      agree(kRms, rms, {3, 4}, {4}, device);
    });
  }

  TEST_CASE("gradients and their gradients agree with central differences") {
    for_each_device([](Device device) {
      const auto check = [&](const Function& norm, const Shape& shape, const Shape& sizes) {
        const auto leaf = [&](const Shape& of, std::uint64_t seed) {
          return random_tensor(of, seed, DType::float64, device).set_requires_grad();
        };
        const std::vector<Tensor> inputs{leaf(shape, 1), leaf(sizes, 2), leaf(sizes, 3)};
        const auto function = [&](const std::vector<Tensor>& in) {
          return std::vector<Tensor>{norm(in[0], in[1], in[2]) + in[2].sum()};
        };
        const GradCheckResult first = grad_check(function, inputs);
        CHECK_MESSAGE(first.ok, first.message);
        const GradCheckResult second = grad_grad_check(function, inputs);
        CHECK_MESSAGE(second.ok, second.message);
      };
      check(layer, {2, 2, 3}, {2, 3});
      check(group, {2, 4, 2}, {4});
      check(rms, {2, 4}, {4});
    });
  }

  TEST_CASE("16-bit elements are computed in float32 and rounded once") {
    for_each_device([](Device device) {
      for (const DType dtype : {DType::float16, DType::bfloat16}) {
        const Tensor x = random_tensor({3, 4}, 1, dtype, device);
        const Tensor weight = random_tensor({4}, 2, DType::float32, device);
        const Tensor bias = random_tensor({4}, 3, DType::float32, device);
        for (const Function& norm : {Function(layer), Function(group), Function(rms)}) {
          const Tensor y = norm(x, weight, bias);
          CHECK(y.dtype() == dtype);
          testing::check_identical(y, norm(x.to(DType::float32), weight, bias).to(dtype));
        }
        const Autocast scope(device.type, {.dtype = dtype});
        CHECK(layer_norm(x, {4}).dtype() == DType::float32);
      }
    });
  }

  TEST_CASE("rows of one element are all mean, and empty ones stay empty") {
    check_close(layer_norm(full({3, 1}, 7.0), {1}), {0, 0, 0}, 0);
    CHECK(layer_norm(zeros({0, 4}), {4}).shape() == Shape{0, 4});
    CHECK(group_norm(zeros({0, 4}), 2).shape() == Shape{0, 4});
    CHECK(rms_norm(zeros({0, 4}), {4}).shape() == Shape{0, 4});
  }

  TEST_CASE("what does not fit is refused by name") {
    const Tensor x = zeros({2, 4});
    CHECK_THROWS_WITH_AS((void)layer_norm(x, {3}),
                         doctest::Contains("layer_norm: the last axes of x must have the sizes [3],"
                                           " at least one and none empty, got x of shape [2, 4]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS((void)layer_norm(x, {4}, zeros({2})),
                         doctest::Contains("layer_norm: weight must have shape [4], got [2]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(
        (void)rms_norm(x, {4}, zeros({4}, {.dtype = DType::float16})),
        doctest::Contains("rms_norm: weight must be float32 or the dtype of x, got "
                          "float16[4] on cpu for x of float32"),
        DTypeError);
    CHECK_THROWS_WITH_AS((void)group_norm(x, 3),
                         doctest::Contains("group_norm: groups must divide the channels, got 3 "
                                           "groups and x of shape [2, 4]"),
                         ValueError);
    CHECK_THROWS_WITH_AS((void)group_norm(zeros({4}), 2),
                         doctest::Contains("group_norm: x must be"), ShapeError);
    CHECK_THROWS_WITH_AS((void)rms_norm(zeros({2, 4}, {.dtype = DType::int64}), {4}),
                         doctest::Contains("rms_norm: needs a floating dtype"), DTypeError);
  }
}

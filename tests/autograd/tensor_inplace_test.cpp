#include "autograd/arithmetic.h"
#include "autograd/grad_mode.h"
#include "autograd/math.h"
#include "autograd/reduce.h"
#include "framework/tensor/factory.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;

Tensor leaf(const Shape& shape, const std::vector<double>& values, Device device) {
  return Tensor::from_vector(shape, values, device).set_requires_grad();
}

}  // namespace

TEST_SUITE("autograd/tensor_inplace") {
  TEST_CASE("writes broadcast the operand and return the tensor") {
    testing::for_each_device([](Device device) {
      const Tensor x = Tensor::from_vector<float>({2, 2}, {1, 2, 3, 4}, device);
      const Tensor row = Tensor::from_vector<float>({2}, {10, 20}, device);
      CHECK(x.add_(row).is_same(x));
      check_close(x, {11, 22, 13, 24}, 0);
      check_close(x.sub_(row).mul_(row), {10, 40, 30, 80}, 0);
      check_close(x.div_(row).mul_(2), {2, 4, 6, 8}, 0);
      check_close(x.fill_(7), {7, 7, 7, 7}, 0);
      check_close(x.zero_(), {0, 0, 0, 0}, 0);
      check_close(x.copy_(row), {10, 20, 10, 20}, 0);
      x.select(0, 1).fill_(5);
      check_close(x, {10, 20, 5, 5}, 0);
      x.copy_(Tensor::from_vector<std::int64_t>({2, 1}, {1, 2}, device));
      check_close(x, {1, 1, 2, 2}, 0);
    });
  }

  TEST_CASE("an operand that overlaps is read before it is written") {
    testing::for_each_device([](Device device) {
      const Tensor x = Tensor::from_vector<float>({2, 2}, {1, 2, 3, 4}, device);
      check_close(x.add_(x.t()), {2, 5, 5, 8}, 0);
      const Tensor y = Tensor::from_vector<float>({2, 2}, {1, 2, 3, 4}, device);
      check_close(y.copy_(y.t()), {1, 3, 2, 4}, 0);
    });
  }

  TEST_CASE("a leaf that requires a gradient is written without recording only") {
    const Tensor x = leaf({2}, {1, 2}, Device::cpu());
    CHECK_THROWS_WITH_AS(x.add_(1),
                         doctest::Contains("add_: a leaf that requires a gradient cannot be "
                                           "written while gradients are recorded, got float64[2]"),
                         GradError);
    CHECK_THROWS_AS(x.mul_(x), GradError);
    CHECK_THROWS_WITH_AS(x.zero_(), doctest::Contains("zero_"), GradError);
    CHECK_THROWS_WITH_AS(x.copy_(x), doctest::Contains("NoGradGuard"), GradError);
    check_close(x, {1, 2}, 0);
    {
      const NoGradGuard no_grad;
      x.add_(1);
    }
    x.detach().mul_(10);
    check_close(x, {20, 30}, 0);
    CHECK(x.is_leaf());
    CHECK(x.requires_grad());
  }

  TEST_CASE("a result that is written gets a new history") {
    testing::for_each_device([](Device device) {
      const Tensor x = leaf({2}, {1, 2}, device);
      const Tensor y = x * 3;
      y.add_(x).mul_(x);
      check_close(y, {4, 16}, 0);
      y.sum().backward();
      check_close(x.grad(), {8, 16}, 0);

      x.set_grad({});
      const Tensor z = x * 3;
      z.fill_(1);
      (z * x).sum().backward();
      check_close(x.grad(), {1, 1}, 0);
    });
  }

  TEST_CASE("a tensor without history takes that of what is written into it") {
    testing::for_each_device([](Device device) {
      const Tensor x = leaf({2}, {1, 2}, device);
      const Tensor total = zeros({2}, {.dtype = DType::float64, .device = device});
      for (int i = 0; i < 3; ++i) total.add_(square(x));
      CHECK(total.requires_grad());
      total.sum().backward();
      check_close(x.grad(), {6, 12}, 0);

      x.set_grad({});
      const Tensor copy = zeros({3, 2}, {.device = device});
      copy.copy_(x);
      copy.sum().backward();
      CHECK(x.grad().dtype() == DType::float64);
      check_close(x.grad(), {3, 3}, 0);

      const Tensor counts = zeros({2}, {.dtype = DType::int64, .device = device});
      CHECK_FALSE(counts.copy_(x).requires_grad());
    });
  }

  TEST_CASE("a value that backward needs is missed after a write") {
    const Tensor x = leaf({2}, {1, 2}, Device::cpu());
    const Tensor y = exp(x);
    y.add_(1);
    CHECK_THROWS_WITH_AS(y.sum().backward(), doctest::Contains("backward of exp"), GradError);
    const Tensor z = x + 1;
    z.add_(1);
    CHECK_NOTHROW(z.sum().backward());
  }

  TEST_CASE("writes that would leave wrong histories behind are refused") {
    const Tensor x = leaf({2, 2}, {1, 2, 3, 4}, Device::cpu());
    const Tensor y = x * 2;
    const Tensor row = y.select(0, 0);
    CHECK_THROWS_WITH_AS(row.mul_(3), doctest::Contains("mul_: the tensor shares its memory"),
                         GradError);
    CHECK_THROWS_WITH_AS(y.mul_(3), doctest::Contains("clone()"), GradError);
    CHECK_THROWS_AS(y.t().zero_(), GradError);
    CHECK_THROWS_AS(x.select(0, 0).zero_(), GradError);

    const Tensor buffer = zeros({2, 2}, {.dtype = DType::float64});
    CHECK_THROWS_AS(buffer.select(0, 0).copy_(x.select(0, 0)), GradError);
    const Tensor part = buffer.select(0, 1);
    CHECK_THROWS_AS(buffer.add_(x), GradError);
    check_close(y, {2, 4, 6, 8}, 0);
    check_close(buffer, {0, 0, 0, 0}, 0);
    {
      const NoGradGuard no_grad;
      row.zero_();
      part.copy_(x.select(0, 0));
    }
    check_close(y, {0, 0, 6, 8}, 0);
    check_close(buffer, {0, 0, 1, 2}, 0);
  }

  TEST_CASE("a view whose base is gone is written like any other result") {
    const Tensor x = leaf({2, 2}, {1, 2, 3, 4}, Device::cpu());
    const Tensor y = (x * 2).reshape({4});
    y.mul_(3);
    y.sum().backward();
    check_close(x.grad(), {6, 6, 6, 6}, 0);

    x.set_grad({});
    const Tensor z = x * 2;
    const Tensor total = z.t().sum();
    z.mul_(5);
    (z.sum() + total).backward();
    check_close(x.grad(), {12, 12, 12, 12}, 0);
  }

  TEST_CASE("a refused operand changes nothing") {
    const Tensor x = leaf({2}, {1, 2}, Device::cpu());
    const Tensor y = x * 2;
    CHECK_THROWS_AS(y.mul_(leaf({3}, {1, 2, 3}, Device::cpu())), ShapeError);
    CHECK_THROWS_AS(y.copy_(leaf({3}, {1, 2, 3}, Device::cpu())), ShapeError);
    check_close(y, {2, 4}, 0);
    y.sum().backward();
    check_close(x.grad(), {2, 2}, 0);
  }
}

}  // namespace capstan

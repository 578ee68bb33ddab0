#include "autograd/reduce.h"

#include "autograd/arithmetic.h"
#include "autograd/math.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;

Tensor leaf(const Shape& shape, const std::vector<double>& values, Device device) {
  return Tensor::from_vector(shape, values, device).set_requires_grad();
}

}  // namespace

TEST_SUITE("autograd/reduce") {
  TEST_CASE("sum and mean spread their gradient evenly") {
    testing::for_each_device([](Device device) {
      const Tensor x = leaf({2, 3}, {1, 2, 3, 4, 5, 6}, device);
      const double tolerance = testing::tolerance_for(DType::float64, device);
      check_close(x.sum({0}), {5, 7, 9}, tolerance);
      check_close(x.mean({1}, true), {2, 5}, tolerance);
      (x.sum({0}) * Tensor::from_vector<double>({3}, {1, 10, 100}, device)).sum().backward();
      check_close(x.grad(), {1, 10, 100, 1, 10, 100}, tolerance);
      x.set_grad({});
      square(x.mean({1}, true)).sum().backward();
      check_close(x.grad(), {4.0 / 3, 4.0 / 3, 4.0 / 3, 10.0 / 3, 10.0 / 3, 10.0 / 3}, tolerance);
    });
  }

  TEST_CASE("equal extremes share the gradient") {
    testing::for_each_device([](Device device) {
      const Tensor x = leaf({2, 3}, {5, 1, 5, 0, 2, 0}, device);
      check_close(x.max({1}), {5, 2}, 0);
      check_close(min(x, {1}), {1, 0}, 0);
      x.max({1}).sum().backward();
      check_close(x.grad(), {0.5, 0, 0.5, 0, 1, 0}, 0);
      x.set_grad({});
      min(x).backward();
      check_close(x.grad(), {0, 0, 0, 0.5, 0, 0.5}, 0);
    });
  }

  TEST_CASE("argmax and sums of integers have no gradient") {
    testing::for_each_device([](Device device) {
      const Tensor x = leaf({2, 3}, {1, 7, 7, 9, 2, 0}, device);
      const Tensor best = x.argmax(1);
      CHECK(best.dtype() == DType::int64);
      CHECK_FALSE(best.requires_grad());
      check_close(best, {1, 0}, 0);
      check_close(sum(gt(x, 6)), {3}, 0);
    });
  }

  TEST_CASE("a gradient of a sum is memory of its own") {
    const Tensor x = leaf({3}, {1, 2, 3}, Device::cpu());
    x.sum().backward();
    CHECK(x.grad().is_contiguous());
    x.grad().add_(Tensor::from_vector<double>({3}, {1, 2, 3}));
    check_close(x.grad(), {2, 3, 4}, 0);
  }

  TEST_CASE("bad axes are refused by name") {
    const Tensor x = leaf({2, 3}, {1, 2, 3, 4, 5, 6}, Device::cpu());
    CHECK_THROWS_WITH_AS((void)x.sum({2}), doctest::Contains("sum"), IndexError);
    CHECK_THROWS_WITH_AS((void)x.mean({0, 0}), doctest::Contains("mean"), ValueError);
    CHECK_THROWS_AS((void)Tensor::from_vector<std::int64_t>({1}, {1}).mean(), DTypeError);
  }
}

}  // namespace capstan

#include "autograd/linalg.h"

#include "autograd/arithmetic.h"
#include "framework/core/counters.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;

Tensor leaf(const Shape& shape, const std::vector<double>& values, Device device) {
  return Tensor::from_vector(shape, values, device).set_requires_grad();
}

}  // namespace

TEST_SUITE("autograd/linalg") {
  TEST_CASE("matmul passes g b^T and a^T g back") {
    testing::for_each_device([](Device device) {
      const Tensor a = leaf({2, 2}, {1, 2, 3, 4}, device);
      const Tensor b = leaf({2, 2}, {5, 6, 7, 8}, device);
      const double tolerance = testing::tolerance_for(DType::float64, device);
      const Tensor y = a.matmul(b);
      check_close(y, {19, 22, 43, 50}, tolerance);
      y.backward(Tensor::from_vector<double>({2, 2}, {1, 0, 0, 2}, device));
      check_close(a.grad(), {5, 7, 12, 16}, tolerance);
      check_close(b.grad(), {1, 6, 2, 8}, tolerance);
    });
  }

  TEST_CASE("the gradient of a matrix shared by all batches is a sum over them") {
    testing::for_each_device([](Device device) {
      const Tensor a = leaf({2, 1, 2}, {1, 2, 3, 4}, device);
      const Tensor b = leaf({2, 1}, {10, 20}, device);
      matmul(a, b).sum().backward();
      const double tolerance = testing::tolerance_for(DType::float64, device);
      check_close(a.grad(), {10, 20, 10, 20}, tolerance);
      check_close(b.grad(), {4, 6}, tolerance);
    });
  }

  TEST_CASE("linear is x w^T + bias, and its backward copies nothing") {
    testing::for_each_device([](Device device) {
      const Tensor x = leaf({2, 3}, {1, 2, 3, 4, 5, 6}, device);
      const Tensor weight = leaf({2, 3}, {1, 0, 1, 0, 1, 0}, device);
      const Tensor bias = leaf({2}, {10, 20}, device);
      const double tolerance = testing::tolerance_for(DType::float64, device);
      const Tensor y = linear(x, weight, bias);
      check_close(y, {14, 22, 20, 25}, tolerance);
      const Tensor g = Tensor::from_vector<double>({2, 2}, {1, 2, 3, 4}, device);
      const std::int64_t before = counters().dispatches;
      y.backward(g);
      // Two products and a sum of columns.
      CHECK(counters().dispatches - before == 3);
      check_close(x.grad(), {1, 2, 1, 3, 4, 3}, tolerance);
      check_close(weight.grad(), {13, 17, 21, 18, 24, 30}, tolerance);
      check_close(bias.grad(), {4, 6}, tolerance);
    });
  }

  TEST_CASE("only what is needed is computed") {
    const Tensor x = Tensor::from_vector<double>({1, 2}, {1, 2});
    const Tensor weight = leaf({1, 2}, {3, 4}, Device::cpu());
    const Tensor y = linear(x, weight);
    const std::int64_t before = counters().dispatches;
    y.backward(Tensor::from_vector<double>({1, 1}, {1}));
    CHECK(counters().dispatches - before == 1);
    check_close(weight.grad(), {1, 2}, 0);
  }

  TEST_CASE("only what is needed is kept") {
    const Tensor start = leaf({1, 2}, {1, 2}, Device::cpu());
    const Tensor fixed = Tensor::from_vector<double>({1, 2}, {3, 4});
    const Tensor x = start * 1;
    const Tensor y = linear(x, fixed) + matmul(x, fixed.t());
    CHECK(x.impl()->use_count() == 1);
    y.backward();
    check_close(start.grad(), {6, 8}, 0);
  }

  TEST_CASE("products over nothing are zero") {
    const Tensor a = leaf({2, 0}, {}, Device::cpu());
    const Tensor b = leaf({0, 3}, {}, Device::cpu());
    const Tensor y = matmul(a, b);
    check_close(y, {0, 0, 0, 0, 0, 0}, 0);
    y.sum().backward();
    CHECK(a.grad().shape() == Shape{2, 0});
    CHECK(b.grad().shape() == Shape{0, 3});
  }

  TEST_CASE("bmm takes batches of one size only") {
    const Tensor a = ones({2, 3, 4});
    CHECK(bmm(a, ones({2, 4, 5})).shape() == Shape{2, 3, 5});
    CHECK_THROWS_WITH_AS((void)bmm(a, ones({4, 5})),
                         doctest::Contains("bmm: needs two tensors of rank 3, got a [2, 3, 4] and "
                                           "b [4, 5]; matmul takes other ranks"),
                         ShapeError);
    CHECK_THROWS_WITH_AS((void)bmm(a, ones({1, 4, 5})),
                         doctest::Contains("bmm: batch sizes differ"), ShapeError);
    CHECK_THROWS_WITH_AS((void)bmm(a, ones({2, 3, 5})),
                         doctest::Contains("bmm: inner sizes differ"), ShapeError);
    CHECK_THROWS_WITH_AS((void)matmul(a, ones({3, 4})), doctest::Contains("matmul"), ShapeError);
    CHECK_THROWS_WITH_AS((void)linear(a, ones({5, 3})), doctest::Contains("linear"), ShapeError);
  }
}

}  // namespace capstan

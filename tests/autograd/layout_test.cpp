#include "autograd/layout.h"

#include "autograd/arithmetic.h"
#include "autograd/reduce.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;

Tensor leaf(const Shape& shape, const std::vector<double>& values, Device device) {
  return Tensor::from_vector(shape, values, device).set_requires_grad();
}

}  // namespace

TEST_SUITE("autograd/layout") {
  TEST_CASE("cat hands each part its slice of the gradient") {
    testing::for_each_device([](Device device) {
      const Tensor a = leaf({2, 1}, {1, 2}, device);
      const Tensor b = Tensor::from_vector<double>({2, 0}, {}, device);
      const Tensor c = leaf({2, 2}, {3, 4, 5, 6}, device);
      const Tensor y = cat({a, b, c}, -1);
      check_close(y, {1, 3, 4, 2, 5, 6}, 0);
      y.backward(Tensor::from_vector<double>({2, 3}, {10, 20, 30, 40, 50, 60}, device));
      check_close(a.grad(), {10, 40}, 0);
      check_close(c.grad(), {20, 30, 50, 60}, 0);
      CHECK_FALSE(b.grad().defined());
    });
  }

  TEST_CASE("one tensor given twice to cat gets both gradients") {
    const Tensor a = leaf({1}, {1}, Device::cpu());
    cat({a, a, a}).backward(Tensor::from_vector<double>({3}, {1, 2, 4}));
    check_close(a.grad(), {7}, 0);
  }

  TEST_CASE("gradients of repeated indices add up") {
    testing::for_each_device([](Device device) {
      const Tensor x = leaf({2, 2}, {1, 2, 3, 4}, device);
      const Tensor rows = Tensor::from_vector<std::int64_t>({3}, {1, 1, 0}, device);
      const Tensor y = index_select(x, 0, rows);
      check_close(y, {3, 4, 3, 4, 1, 2}, 0);
      y.backward(Tensor::from_vector<double>({3, 2}, {1, 2, 3, 4, 5, 6}, device));
      check_close(x.grad(), {5, 6, 4, 6}, 0);
      x.set_grad({});
      const Tensor picks = Tensor::from_vector<std::int64_t>({2, 3}, {0, 0, 1, 1, 1, 1}, device);
      const Tensor z = gather(x, 1, picks);
      check_close(z, {1, 1, 2, 4, 4, 4}, 0);
      z.backward(Tensor::from_vector<double>({2, 3}, {1, 2, 3, 4, 5, 6}, device));
      check_close(x.grad(), {3, 3, 0, 15}, 0);
    });
  }

  TEST_CASE("one_hot marks the label and has no gradient") {
    testing::for_each_device([](Device device) {
      const Tensor y = one_hot(Tensor::from_vector<std::int64_t>({2}, {2, 0}, device), 3);
      check_close(y, {0, 0, 1, 1, 0, 0}, 0);
      CHECK_FALSE(y.requires_grad());
    });
  }

  TEST_CASE("dropout keeps the share 1 - p and passes gradients where it kept") {
    testing::for_each_device([](Device device) {
      const Tensor x = ones({100, 100}, {.device = device}).set_requires_grad();
      const Generator generator(7, device);
      const Tensor y = dropout(x, 0.25, true, &generator);
      const double kept = sum(gt(y, 0)).item() / 10000.0;
      CHECK(kept == doctest::Approx(0.75).epsilon(0.03));
      const double tolerance = testing::tolerance_for(DType::float32, device);
      check_close(where(gt(y, 0), y, ones_like(y)).max(), {4.0 / 3}, tolerance);
      (y * 3).sum().backward();
      check_close(x.grad(), y.detach() * 3, tolerance);

      const Generator again(7, device);
      testing::check_identical(dropout(x, 0.25, true, &again).detach(), y.detach());
    });
  }

  TEST_CASE("dropout is x itself out of training or with p = 0, and 0 with p = 1") {
    const Tensor x = leaf({3}, {1, 2, 3}, Device::cpu());
    CHECK(dropout(x, 0.5, false).is_same(x));
    CHECK(dropout(x, 0.0).is_same(x));
    const Tensor y = dropout(x, 1.0);
    check_close(y, {0, 0, 0}, 0);
    y.sum().backward();
    check_close(x.grad(), {0, 0, 0}, 0);
    CHECK_THROWS_WITH_AS((void)dropout(x, 1.5, false),
                         doctest::Contains("dropout: p must lie in [0, 1], got 1.5"), ValueError);
  }

  TEST_CASE("bad arguments are refused by name") {
    const Tensor x = leaf({2, 2}, {1, 2, 3, 4}, Device::cpu());
    CHECK_THROWS_WITH_AS((void)cat({}), doctest::Contains("cat"), ValueError);
    CHECK_THROWS_WITH_AS((void)cat({x, leaf({3}, {1, 2, 3}, Device::cpu())}),
                         doctest::Contains("cat: tensor 1"), ShapeError);
    CHECK_THROWS_WITH_AS((void)index_select(x, 0, Tensor::from_vector<std::int64_t>({1}, {2})),
                         doctest::Contains("index_select"), IndexError);
    CHECK_THROWS_AS((void)gather(x, 0, x), DTypeError);
  }
}

}  // namespace capstan

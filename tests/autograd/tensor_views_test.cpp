#include "autograd/arithmetic.h"
#include "autograd/math.h"
#include "autograd/reduce.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;

Tensor leaf(const Shape& shape, const std::vector<double>& values, Device device) {
  return Tensor::from_vector(shape, values, device).set_requires_grad();
}

Tensor iota(const Shape& shape, Device device) {
  return arange(0, static_cast<double>(shape.numel()), 1, {DType::float64, device}).reshape(shape);
}

}  // namespace

TEST_SUITE("autograd/tensor_views") {
  TEST_CASE("views share memory and show the right elements") {
    testing::for_each_device([](Device device) {
      const Tensor x = iota({2, 3}, device);
      for (const Tensor& view :
           {x.reshape({3, 2}), x.flatten(), x.transpose(0, 1), x.t(), x.permute({1, 0}),
            x.slice(1, 1, 3), x.select(0, 1), x.unsqueeze(0), x.unsqueeze(-1).expand({2, 3, 4}),
            x.unsqueeze(1).squeeze(1), x.unsqueeze(0).squeeze()}) {
        CHECK(view.storage() == x.storage());
      }
      check_close(x.t(), {0, 3, 1, 4, 2, 5}, 0);
      check_close(x.slice(1, -3, 100, 2), {0, 2, 3, 5}, 0);
      check_close(x.select(-1, -1), {2, 5}, 0);
      CHECK(x.unsqueeze(-1).shape() == Shape{2, 3, 1});
      CHECK(iota({2, 3, 4}, device).flatten(1).shape() == Shape{2, 12});
      CHECK(iota({2, 3, 4}, device).flatten(0, 1).shape() == Shape{6, 4});
      CHECK(iota({}, device).flatten().shape() == Shape{1});
    });
  }

  TEST_CASE("reshape copies where strides permit no view") {
    testing::for_each_device([](Device device) {
      const Tensor x = iota({2, 3}, device);
      const Tensor y = x.t().reshape({6});
      CHECK_FALSE(y.storage() == x.storage());
      check_close(y, {0, 3, 1, 4, 2, 5}, 0);
    });
  }

  TEST_CASE("gradients flow back to the elements that a view shows") {
    testing::for_each_device([](Device device) {
      const Tensor x = leaf({2, 3}, {1, 2, 3, 4, 5, 6}, device);
      const Tensor part = x.slice(1, 0, 3, 2);
      part.backward(Tensor::from_vector<double>({2, 2}, {1, 2, 3, 4}, device));
      check_close(x.grad(), {1, 0, 2, 3, 0, 4}, 0);
      x.set_grad({});
      x.select(0, -1).backward(Tensor::from_vector<double>({3}, {1, 2, 3}, device));
      check_close(x.grad(), {0, 0, 0, 1, 2, 3}, 0);
      x.set_grad({});
      x.t().backward(Tensor::from_vector<double>({3, 2}, {1, 2, 3, 4, 5, 6}, device));
      check_close(x.grad(), {1, 3, 5, 2, 4, 6}, 0);
    });
  }

  TEST_CASE("expand sums the gradients of its repetitions") {
    testing::for_each_device([](Device device) {
      const Tensor x = leaf({2, 1}, {1, 2}, device);
      x.expand({3, 2, 2}).sum().backward();
      check_close(x.grad(), {6, 6}, 0);
    });
  }

  TEST_CASE("a view of a view has the gradients of both") {
    testing::for_each_device([](Device device) {
      const Tensor x = leaf({4}, {1, 2, 3, 4}, device);
      (square(x.reshape({2, 2}).t().select(0, 1)) * 10).sum().backward();
      check_close(x.grad(), {0, 40, 0, 80}, 0);
    });
  }

  TEST_CASE("axes and shapes that do not fit are refused by name") {
    const Tensor x = iota({2, 3}, Device::cpu());
    CHECK_THROWS_WITH_AS((void)x.reshape({4}), doctest::Contains("reshape"), ShapeError);
    CHECK_THROWS_WITH_AS((void)x.flatten(1, 0), doctest::Contains("flatten: first must not lie"),
                         ValueError);
    CHECK_THROWS_WITH_AS((void)x.select(0, 2), doctest::Contains("select: index 2"), IndexError);
    CHECK_THROWS_WITH_AS((void)x.expand({5, 3}), doctest::Contains("expand"), ShapeError);
    CHECK_THROWS_WITH_AS((void)x.transpose(0, 2), doctest::Contains("transpose"), IndexError);
    CHECK_THROWS_WITH_AS((void)x.permute({0, 0}), doctest::Contains("permute"), ValueError);
    CHECK_THROWS_WITH_AS((void)x.slice(0, 0, 1, 0), doctest::Contains("slice: step"), ValueError);
    CHECK_THROWS_WITH_AS((void)x.select(0, 0).t(),
                         doctest::Contains("t: needs at least 2 axes, got shape [3]"), ShapeError);
  }
}

}  // namespace capstan

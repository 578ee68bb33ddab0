#include "ops/pool.h"

#include <cmath>

#include "framework/tensor/factory.h"
#include "framework/tensor/view.h"
#include "ops/creation.h"
#include "ops/elementwise.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::check_identical;
using testing::for_each_device;
using testing::random_tensor;
using testing::tolerance_for;

TEST_SUITE("ops/pool") {
  TEST_CASE("windows of 2x2 match hand-computed values") {
    for_each_device([](Device device) {
      const Tensor x =
          Tensor::from_vector<float>({1, 1, 2, 5}, {1, 2, 3, 4, 9, 8, 6, 7, 5, 9}, device);
      const MaxPool largest = ops::max_pool2d(x, 2, {});
      check_close(largest.y, {8, 7}, 0);
      check_close(largest.indices, {5, 7}, 0);
      CHECK(largest.indices.dtype() == DType::int64);
      check_close(ops::avg_pool2d(x, 2, {}), {4.25, 4.75}, 0);
      check_close(ops::adaptive_avg_pool2d(x, {1, 2}), {4.5, 6.0 + 1.0 / 6.0},
                  tolerance_for(DType::float32, device));
      const Tensor g = Tensor::from_vector<float>({1, 1, 1, 2}, {4, 8}, device);
      check_close(ops::max_pool2d_backward(g, largest.indices, x.shape(), 2, {}),
                  {0, 0, 0, 0, 0, 4, 0, 8, 0, 0}, 0);
      check_close(ops::avg_pool2d_backward(g, x.shape(), 2, {}), {1, 1, 2, 2, 0, 1, 1, 2, 2, 0}, 0);
    });
  }

  TEST_CASE("the first of equals and the first NaN are the largest, and padding never is") {
    for_each_device([](Device device) {
      const float nan = std::nanf("");
      const Tensor x =
          Tensor::from_vector<float>({1, 1, 2, 4}, {-1, -1, nan, 5, -1, -1, 7, nan}, device);
      const MaxPool largest = ops::max_pool2d(x, 2, {});
      check_close(largest.y, {-1, NAN}, 0);
      check_close(largest.indices, {0, 2}, 0);
      const Tensor low = full({1, 1, 2, 2}, -3.0, {.device = device});
      check_close(ops::max_pool2d(low, 2, {.padding = 1}).y, {-3, -3, -3, -3}, 0);
    });
  }

  TEST_CASE("gradients of overlapping windows add up to the gradient that came in") {
    for_each_device([](Device device) {
      const Shape shape{3, 5, 17, 13};
      const Tensor x = random_tensor(shape, 1, DType::float64, device);
      const MaxPoolOptions largest{.stride = 1, .padding = 1};
      const AvgPoolOptions mean{.stride = 2, .padding = 1, .count_include_pad = false};
      const auto total = [](const Tensor& t) {
        double sum = 0.0;
        for (const double value : t.to_vector<double>()) sum += value;
        return sum;
      };
      const MaxPool pooled = ops::max_pool2d(x, 3, largest);
      const Tensor g = random_tensor(pooled.y.shape(), 2, DType::float64, device);
      CHECK(total(ops::max_pool2d_backward(g, pooled.indices, shape, 3, largest)) ==
            doctest::Approx(total(g)));
      const Tensor h =
          random_tensor(ops::avg_pool2d(x, 3, mean).shape(), 3, DType::float64, device);
      CHECK(total(ops::avg_pool2d_backward(h, shape, 3, mean)) == doctest::Approx(total(h)));
      const Tensor a = random_tensor({3, 5, 7, 20}, 4, DType::float64, device);
      CHECK(total(ops::adaptive_avg_pool2d_backward(a, shape)) == doctest::Approx(total(a)));
    });
  }

  TEST_CASE("views and 16-bit elements give what dense float32 gives, rounded once") {
    for_each_device([](Device device) {
      for (const DType dtype : {DType::float16, DType::bfloat16}) {
        const Tensor x = view::transpose(random_tensor({2, 3, 9, 8}, 1, dtype, device), 2, 3);
        const Tensor wide = ops::cast(x, DType::float32);
        const MaxPool a = ops::max_pool2d(x, 3, {.stride = 2});
        const MaxPool b = ops::max_pool2d(wide, 3, {.stride = 2});
        check_identical(a.indices, b.indices);
        check_identical(a.y, ops::cast(b.y, dtype));
        check_close(ops::avg_pool2d(x, 3, {.stride = 2}), ops::avg_pool2d(wide, 3, {.stride = 2}),
                    tolerance_for(dtype, device));
        CHECK(ops::adaptive_avg_pool2d(x, 2).dtype() == dtype);
      }
    });
  }

  TEST_CASE("an empty batch gives an empty result") {
    const Tensor x = zeros({0, 2, 4, 4});
    const MaxPool pooled = ops::max_pool2d(x, 2, {});
    CHECK(pooled.y.shape() == Shape{0, 2, 2, 2});
    CHECK(ops::max_pool2d_backward(pooled.y, pooled.indices, x.shape(), 2, {}).shape() ==
          x.shape());
    CHECK(ops::adaptive_avg_pool2d(x, 3).shape() == Shape{0, 2, 3, 3});
  }

  TEST_CASE("wrong shapes, dtypes and options are named with what was got") {
    const Tensor x = zeros({1, 2, 4, 5});
    CHECK_THROWS_WITH_AS((void)ops::max_pool2d(zeros({2, 4, 5}), 2, {}),
                         doctest::Contains("max_pool2d: x must be [batch, channels, height, width],"
                                           " got shape [2, 4, 5]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS((void)ops::max_pool2d(zeros({1, 2, 4, 5}, {.dtype = DType::int64}), 2, {}),
                         doctest::Contains("max_pool2d: needs a floating dtype"), DTypeError);
    CHECK_THROWS_WITH_AS((void)ops::avg_pool2d(x, {5, 2}, {}),
                         doctest::Contains("avg_pool2d: the window's height reaches over 5, more "
                                           "than the 4 of x with its padding"),
                         ShapeError);
    CHECK_THROWS_WITH_AS((void)ops::max_pool2d(x, {2, 0}, {}),
                         doctest::Contains("the window along the width must be at least 1, got 0"),
                         ValueError);
    CHECK_THROWS_WITH_AS((void)ops::avg_pool2d(x, 2, {.stride = Size2d{0, 1}}),
                         doctest::Contains("the stride along the height must be at least 1, got 0"),
                         ValueError);
    CHECK_THROWS_WITH_AS((void)ops::max_pool2d(x, 3, {.padding = {1, 2}}),
                         doctest::Contains("padding along the width must be at most half of the "
                                           "window, which reaches over 3, got 2"),
                         ValueError);
    CHECK_THROWS_WITH_AS(
        (void)ops::max_pool2d(zeros({1, 1, 1, 4}), {2, 1}, {.padding = {2, 0}, .dilation = {3, 1}}),
        doctest::Contains("along the height window 0 meets padding alone"), ShapeError);
    CHECK_THROWS_WITH_AS((void)ops::adaptive_avg_pool2d(x, {0, 2}),
                         doctest::Contains("the output must be at least 1 x 1, got 0 x 2"),
                         ValueError);
    CHECK_THROWS_WITH_AS((void)ops::avg_pool2d_backward(x, x.shape(), 2, {}),
                         doctest::Contains("grad must have shape [1, 2, 2, 2], got [1, 2, 4, 5]"),
                         ShapeError);
  }
}

#include "ops/norm.h"

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

namespace {

Tensor tensor(const Shape& shape, const std::vector<double>& values, Device device,
              DType dtype = DType::float64) {
  return ops::cast(Tensor::from_vector(shape, values, device), dtype);
}

}  // namespace

TEST_SUITE("ops/norm") {
  TEST_CASE("statistics, running averages and results match hand-computed values") {
    for_each_device([](Device device) {
      // Channel 0 holds 1, 2, 3, 6: mean 3, variance 3.5, of a sample 14/3; channel 1 is constant.
      const Tensor x = tensor({2, 2, 2}, {1, 2, 5, 5, 3, 6, 5, 5}, device);
      const Tensor mean = tensor({2}, {1, 1}, device);
      const Tensor var = tensor({2}, {1, 1}, device);
      const double tolerance = tolerance_for(DType::float64, device);
      const ops::BatchStats stats =
          ops::batch_stats(x, {.mean = mean, .var = var, .momentum = 0.5}, 0.5);
      check_close(stats.mean, {3, 5}, tolerance);
      check_close(stats.inv_std, {0.5, std::sqrt(2.0)}, tolerance);
      check_close(mean, {2, 3}, tolerance);
      check_close(var, {0.5 + 7.0 / 3.0, 0.5}, tolerance);
      const Tensor y =
          ops::batch_norm(x, stats, tensor({2}, {2, 3}, device), tensor({2}, {10, 20}, device));
      check_close(y, {8, 9, 20, 20, 10, 13, 20, 20}, tolerance);
      check_close(ops::batch_norm(x, stats, {}, {}), {-1, -0.5, 0, 0, 0, 1.5, 0, 0}, tolerance);
    });
  }

  TEST_CASE("an average over all batches reads their number on the device") {
    for_each_device([](Device device) {
      const Tensor mean = zeros({1}, {.device = device});
      const Tensor var = zeros({1}, {.device = device});
      const Tensor batches = ops::cast(tensor({}, {3}, device), DType::int64);
      (void)ops::batch_stats(
          tensor({2, 1}, {4, 12}, device, DType::float32),
          {.mean = mean, .var = var, .batches = batches, .momentum = std::nullopt}, 1e-5);
      check_close(mean, {2}, tolerance_for(DType::float32, device));
      check_close(var, {8}, tolerance_for(DType::float32, device));
      CHECK(batches.item() == 3);
    });
  }

  TEST_CASE("fixed statistics are those of the running averages, which stay") {
    for_each_device([](Device device) {
      const Tensor mean = tensor({2}, {1, 2}, device);
      const Tensor var = tensor({2}, {3.5, 0.5}, device);
      const ops::BatchStats stats =
          ops::fixed_stats(tensor({1, 2}, {7, 8}, device), {.mean = mean, .var = var}, 0.5);
      check_close(stats.mean, {1, 2}, 0);
      check_close(stats.inv_std, {0.5, 1}, tolerance_for(DType::float64, device));
      check_close(mean, {1, 2}, 0);
      check_close(var, {3.5, 0.5}, 0);
    });
  }

  TEST_CASE("each channel has mean 0 and variance 1, for sizes that no block divides") {
    for_each_device([](Device device) {
      for (const Shape& shape : {Shape{70, 129}, Shape{3, 5, 4099}, Shape{33, 2, 7, 9}}) {
        // Far from zero, where squares that cancel would lose everything.
        const Tensor x =
            ops::binary(BinaryOp::add, random_tensor(shape, 3, DType::float32, device), 4096.0);
        const Tensor y = ops::batch_norm(x, ops::batch_stats(x, {}, 1e-12), {}, {});
        const std::int64_t channels = shape[1];
        const std::int64_t inner = shape.numel() / (shape[0] * channels);
        const std::vector<double> values = y.to_vector<double>();
        for (std::int64_t c = 0; c < channels; ++c) {
          double sum = 0.0;
          double squares = 0.0;
          for (std::int64_t o = 0; o < shape[0]; ++o) {
            for (std::int64_t i = 0; i < inner; ++i) {
              const double v = values[static_cast<std::size_t>((o * channels + c) * inner + i)];
              sum += v;
              squares += v * v;
            }
          }
          const double count = static_cast<double>(shape[0] * inner);
          CHECK(std::abs(sum / count) < 1e-3);
          CHECK(squares / count == doctest::Approx(1.0).epsilon(1e-3));
        }
      }
    });
  }

  TEST_CASE("views and 16-bit elements give what dense float32 gives, rounded once") {
    for_each_device([](Device device) {
      for (const DType dtype : {DType::float16, DType::bfloat16}) {
        const Tensor half = random_tensor({6, 5, 4}, 9, dtype, device);
        const Tensor x = view::transpose(half, 0, 2);  // [4, 5, 6]
        const Tensor wide = ops::clone(ops::cast(x, DType::float32));
        const Tensor weight = random_tensor({5}, 1, dtype, device);
        const Tensor bias = random_tensor({5}, 2, DType::float32, device);
        const ops::BatchStats stats = ops::batch_stats(x, {}, 1e-5);
        const ops::BatchStats wide_stats = ops::batch_stats(wide, {}, 1e-5);
        CHECK(stats.mean.dtype() == DType::float32);
        check_identical(stats.mean, wide_stats.mean);
        check_identical(stats.inv_std, wide_stats.inv_std);
        const Tensor y = ops::batch_norm(x, stats, weight, bias);
        const Tensor wide_y =
            ops::batch_norm(wide, wide_stats, ops::cast(weight, DType::float32), bias);
        check_identical(y, ops::cast(wide_y, dtype));
        const ops::BatchNormGradients g = ops::batch_norm_backward(x, x, stats, weight, true, true);
        const ops::BatchNormGradients wide_g = ops::batch_norm_backward(
            wide, wide, wide_stats, ops::cast(weight, DType::float32), true, true);
        check_identical(g.x, ops::cast(wide_g.x, dtype));
        check_identical(g.weight, wide_g.weight);
        check_identical(g.bias, wide_g.bias);
      }
    });
  }

  TEST_CASE("results are the same bits on every run") {
    for_each_device([](Device device) {
      const Tensor x = random_tensor({64, 3, 33, 31}, 5, DType::float32, device);
      const Tensor g = random_tensor({64, 3, 33, 31}, 6, DType::float32, device);
      const ops::BatchStats first = ops::batch_stats(x, {}, 1e-5);
      const ops::BatchStats second = ops::batch_stats(x, {}, 1e-5);
      check_identical(first.mean, second.mean);
      check_identical(first.inv_std, second.inv_std);
      const auto a = ops::batch_norm_backward(g, x, first, {}, true, true);
      const auto b = ops::batch_norm_backward(g, x, second, {}, true, true);
      check_identical(a.x, b.x);
      check_identical(a.weight, b.weight);
    });
  }

  TEST_CASE("an empty batch has no statistics, but fixed ones normalise it to nothing") {
    const Tensor x = zeros({0, 2, 3});
    CHECK_THROWS_AS((void)ops::batch_stats(x, {}, 1e-5), ShapeError);
    const ops::BatchStats stats = ops::fixed_stats(x, {.mean = zeros({2}), .var = ones({2})}, 1e-5);
    CHECK(ops::batch_norm(x, stats, {}, {}).shape() == Shape{0, 2, 3});
    const auto gradients = ops::batch_norm_backward(x, x, stats, {}, false, true);
    CHECK(gradients.x.shape() == Shape{0, 2, 3});
    check_close(gradients.weight, {0, 0}, 0);
  }

  TEST_CASE("what cannot be normalised is refused with its values") {
    const Tensor x = zeros({4, 2, 3});
    const auto stats = [](const Tensor& input, const ops::RunningStats& running) {
      (void)ops::batch_stats(input, running, 1e-5);
    };
    CHECK_THROWS_WITH_AS(stats(zeros({4}), {}),
                         doctest::Contains("batch_norm: x must be [batch, channels, ...] with at "
                                           "least one channel, got shape [4]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(ops::check_batch_size(zeros({1, 2})),
                         doctest::Contains("training needs at least two values in a channel, got x "
                                           "of shape [1, 2]; use a larger batch or eval()"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(stats(zeros({4, 2}, {.dtype = DType::int64}), {}),
                         doctest::Contains("batch_norm: needs a floating dtype"), DTypeError);
    CHECK_THROWS_WITH_AS(stats(x, {.mean = zeros({3}), .var = zeros({2})}),
                         doctest::Contains("running_mean must have shape [2], got [3]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(stats(x, {.mean = zeros({2})}),
                         doctest::Contains("got running_mean alone"), ValueError);
    CHECK_THROWS_WITH_AS(
        stats(x, {.mean = zeros({2}), .var = zeros({2}, {.dtype = DType::float16})}),
        doctest::Contains("running_var must be float32 for x of float32, got float16[2]"),
        DTypeError);
    CHECK_THROWS_WITH_AS(
        stats(x, {.mean = zeros({2}), .var = zeros({2}), .momentum = std::nullopt}),
        doctest::Contains("got neither momentum nor batches"), ValueError);
    CHECK_THROWS_WITH_AS(stats(x, {.mean = zeros({2}), .var = zeros({2}), .batches = zeros({})}),
                         doctest::Contains("batches must be int64, got float32[]"), DTypeError);
    CHECK_THROWS_WITH_AS(ops::check_batch_norm(x, zeros({3}), {}),
                         doctest::Contains("weight must have shape [2], got [3]"), ShapeError);
    CHECK_THROWS_WITH_AS(
        ops::check_batch_norm(x, {}, zeros({2}, {.dtype = DType::float64})),
        doctest::Contains("bias must be float32 or the dtype of x, got float64[2]"), DTypeError);
  }
}

#include "nn/norm.h"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/arithmetic.h"
#include "framework/tensor/factory.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::check_identical;
using testing::for_each_device;
using testing::random_tensor;
using testing::tolerance_for;

TEST_SUITE("nn/norm") {
  TEST_CASE("has PyTorch's names and initial values") {
    nn::BatchNorm2d norm(2);
    std::vector<std::string> names;
    for (const auto& [name, tensor] : norm.state_dict()) names.push_back(name);
    CHECK(names == std::vector<std::string>{"weight", "bias", "running_mean", "running_var",
                                            "num_batches_tracked"});
    check_close(norm.weight, {1, 1}, 0);
    check_close(norm.bias, {0, 0}, 0);
    check_close(norm.running_mean, {0, 0}, 0);
    check_close(norm.running_var, {1, 1}, 0);
    CHECK(norm.num_batches_tracked.dtype() == DType::int64);
    CHECK(norm.num_batches_tracked.shape() == Shape{});
    nn::BatchNorm1d bare(3, {.affine = false, .track_running_stats = false});
    CHECK(bare.state_dict().empty());
    nn::BatchNorm1d half(3, {.dtype = DType::bfloat16});
    CHECK(half.weight.dtype() == DType::bfloat16);
    CHECK(half.running_var.dtype() == DType::float32);
    CHECK(half(zeros({2, 3}, {.dtype = DType::bfloat16})).dtype() == DType::bfloat16);
  }

  TEST_CASE("training follows the batches in place, and evaluation uses what it found") {
    for_each_device([](Device device) {
      nn::BatchNorm1d norm(1, {.eps = 1e-12, .device = device, .dtype = DType::float64});
      const double tolerance = tolerance_for(DType::float64, device);
      const void* const address = norm.running_mean.raw_data();
      const Tensor x = Tensor::from_vector<double>({2, 1}, {9, 11}, device);
      check_close(norm(x), {-1, 1}, tolerance);
      check_close(norm.running_mean, {1}, tolerance);
      check_close(norm.running_var, {1.1}, tolerance);
      CHECK(norm.num_batches_tracked.item() == 1);
      CHECK(norm.running_mean.raw_data() == address);
      norm.eval();
      check_close(norm(Tensor::from_vector<double>({1, 1}, {2.1}, device)), {1.1 / std::sqrt(1.1)},
                  tolerance);
      CHECK(norm.num_batches_tracked.item() == 1);
    });
  }

  TEST_CASE("without momentum the averages are those of all batches") {
    for_each_device([](Device device) {
      nn::BatchNorm1d norm(1, {.momentum = std::nullopt, .device = device});
      for (const double centre : {3.0, 4.0, 11.0}) {
        (void)norm(Tensor::from_vector<float>(
            {2, 1}, {static_cast<float>(centre - 1), static_cast<float>(centre + 1)}, device));
      }
      check_close(norm.running_mean, {6}, tolerance_for(DType::float32, device));
      check_close(norm.running_var, {2}, tolerance_for(DType::float32, device));
      CHECK(norm.num_batches_tracked.item() == 3);
    });
  }

  TEST_CASE("without running statistics evaluation uses those of the batch") {
    nn::BatchNorm2d norm(2, {.track_running_stats = false});
    const Tensor x = random_tensor({3, 2, 2, 2}, 1);
    const Tensor y = norm(x);
    norm.eval();
    check_identical(norm(x).detach(), y.detach());
  }

  TEST_CASE("a state dictionary carries the statistics over") {
    nn::BatchNorm1d first(2);
    (void)first(random_tensor({5, 2}, 1));
    nn::BatchNorm1d second(2);
    second.load_state_dict(first.state_dict());
    check_identical(second.running_mean, first.running_mean);
    check_identical(second.running_var, first.running_var);
    CHECK(second.num_batches_tracked.item() == 1);
  }

  TEST_CASE("ranks, sizes and options are checked with their values") {
    CHECK_THROWS_WITH_AS(nn::BatchNorm2d(0),
                         doctest::Contains("batch_norm2d: needs at least one channel, got 0"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::BatchNorm1d(2, {.eps = 0.0}),
                         doctest::Contains("batch_norm1d: eps must be positive, got 0"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::BatchNorm1d(2, {.dtype = DType::int32}),
                         doctest::Contains("must be floating, got int32"), DTypeError);
    nn::BatchNorm2d norm(2);
    CHECK_THROWS_WITH_AS((void)norm(zeros({4, 2})),
                         doctest::Contains("batch_norm2d: x must be [batch, channels, height, "
                                           "width], got shape [4, 2]"),
                         ShapeError);
    nn::BatchNorm1d flat(2);
    CHECK_THROWS_WITH_AS((void)flat(zeros({4, 2, 3, 3})),
                         doctest::Contains("[batch, channels] or [batch, channels, length], got "
                                           "shape [4, 2, 3, 3]"),
                         ShapeError);
    CHECK_THROWS_AS((void)norm(zeros({4, 3, 2, 2})), ShapeError);
    CHECK(norm.num_batches_tracked.item() == 0);
  }
}

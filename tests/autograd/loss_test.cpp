#include "autograd/loss.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "autograd/reduce.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;

Tensor leaf(const Shape& shape, const std::vector<double>& values, Device device) {
  return Tensor::from_vector(shape, values, device).set_requires_grad();
}

constexpr double kLn2 = std::numbers::ln2;
// Softmax of these two rows is {1/4, 1/4, 1/2} and {1/2, 1/4, 1/4}.
const std::vector<double> kLogits{0, 0, kLn2, kLn2, 0, 0};

}  // namespace

TEST_SUITE("autograd/loss") {
  TEST_CASE("softmax and its logarithm have the known values and gradients") {
    testing::for_each_device([](Device device) {
      const Tensor x = leaf({2, 3}, kLogits, device);
      const double tolerance = testing::tolerance_for(DType::float64, device);
      const Tensor g = Tensor::from_vector<double>({2, 3}, {1, 0, 0, 0, 0, 4}, device);
      const Tensor y = softmax(x);
      check_close(y, {0.25, 0.25, 0.5, 0.5, 0.25, 0.25}, tolerance);
      y.backward(g);
      check_close(x.grad(), {0.1875, -0.0625, -0.125, -0.5, -0.25, 0.75}, tolerance);
      x.set_grad({});
      const Tensor log_y = log_softmax(x, 1);
      check_close(log_y, {-2 * kLn2, -2 * kLn2, -kLn2, -kLn2, -2 * kLn2, -2 * kLn2}, tolerance);
      log_y.backward(g);
      check_close(x.grad(), {0.75, -0.25, -0.5, -2, -1, 3}, tolerance);
    });
  }

  TEST_CASE("cross-entropy is the mean of -log p of the labels") {
    testing::for_each_device([](Device device) {
      const double tolerance = testing::tolerance_for(DType::float64, device);
      const Tensor labels = Tensor::from_vector<std::int64_t>({2}, {2, 1}, device);
      const std::vector<double> slopes{0.25, 0.25, -0.5, 0.5, -0.75, 0.25};
      struct Expected {
        Reduction reduction;
        std::vector<double> loss;
        double scale;
      };
      for (const Expected& expected :
           {Expected{Reduction::mean, {1.5 * kLn2}, 0.5}, Expected{Reduction::sum, {3 * kLn2}, 1},
            Expected{Reduction::none, {kLn2, 2 * kLn2}, 1}}) {
        std::vector<double> want = slopes;
        for (double& value : want) value *= expected.scale;
        for (const bool create_graph : {false, true}) {
          const Tensor x = leaf({2, 3}, kLogits, device);
          const Tensor loss = cross_entropy(x, labels, {.reduction = expected.reduction});
          check_close(loss, expected.loss, tolerance);
          loss.sum().backward({}, {.create_graph = create_graph});
          check_close(x.grad(), want, tolerance);
          x.set_grad({});  // with create_graph its history holds x
        }
        const Tensor x = leaf({2, 3}, kLogits, device);
        const Tensor loss = nll_loss(log_softmax(x), labels, {.reduction = expected.reduction});
        check_close(loss, expected.loss, tolerance);
        loss.sum().backward();
        check_close(x.grad(), want, tolerance);
      }
    });
  }

  TEST_CASE("mse_loss is the mean of squared differences") {
    testing::for_each_device([](Device device) {
      const Tensor x = leaf({2}, {1, 5}, device);
      const Tensor target = leaf({2}, {2, 2}, device);
      const double tolerance = testing::tolerance_for(DType::float64, device);
      check_close(mse_loss(x, target, {.reduction = Reduction::none}), {1, 9}, tolerance);
      check_close(mse_loss(x, target, {.reduction = Reduction::sum}), {10}, tolerance);
      const Tensor loss = mse_loss(x, target);
      check_close(loss, {5}, tolerance);
      loss.backward();
      check_close(x.grad(), {-1, 3}, tolerance);
      check_close(target.grad(), {1, -3}, tolerance);
    });
  }

  TEST_CASE("binary cross-entropy stays finite for huge logits") {
    testing::for_each_device([](Device device) {
      const double tolerance = testing::tolerance_for(DType::float64, device);
      const Tensor x = leaf({4}, {0, kLn2, 1000, -1000}, device);
      const Tensor target = leaf({4}, {1, 0, 1, 1}, device);
      check_close(binary_cross_entropy_with_logits(x, target, {.reduction = Reduction::none}),
                  {kLn2, std::log(3.0), 0, 1000}, tolerance);
      binary_cross_entropy_with_logits(x, target, {.reduction = Reduction::sum}).backward();
      check_close(x.grad(), {-0.5, 2.0 / 3, 0, -1}, tolerance);
      check_close(target.grad(), {0, -kLn2, -1000, 1000}, tolerance);
    });
  }

  TEST_CASE("a label out of range is an IndexError") {
    const Tensor x = leaf({2, 3}, kLogits, Device::cpu());
    const Tensor labels = Tensor::from_vector<std::int64_t>({2}, {0, 3});
    CHECK_THROWS_WITH_AS((void)cross_entropy(x, labels), doctest::Contains("cross_entropy"),
                         IndexError);
    CHECK_THROWS_AS((void)nll_loss(x, labels), IndexError);
  }

  TEST_CASE("shapes that do not fit are named") {
    const Tensor x = leaf({2, 3}, kLogits, Device::cpu());
    CHECK_THROWS_WITH_AS((void)mse_loss(x, leaf({3}, {1, 2, 3}, Device::cpu())),
                         doctest::Contains("mse_loss: x and target must have one shape, got x "
                                           "[2, 3] and target [3]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(
        (void)binary_cross_entropy_with_logits(x, leaf({3}, {1, 2, 3}, Device::cpu())),
        doctest::Contains("binary_cross_entropy_with_logits: x and target"), ShapeError);
    CHECK_THROWS_WITH_AS((void)nll_loss(x, Tensor::from_vector<std::int64_t>({1}, {0})),
                         doctest::Contains("nll_loss: needs log_probabilities"), ShapeError);
    CHECK_THROWS_AS((void)cross_entropy(x, Tensor::from_vector<std::int64_t>({1}, {0})),
                    ShapeError);
    CHECK_THROWS_WITH_AS((void)softmax(leaf({}, {1}, Device::cpu())), doctest::Contains("softmax"),
                         ShapeError);
  }
}

}  // namespace capstan

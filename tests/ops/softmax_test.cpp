#include "ops/softmax.h"

#include <cmath>
#include <limits>

#include "framework/runtime/stream.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/view.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using ops::Reduction;
using testing::check_close;
using testing::for_each_device;
using testing::random_tensor;
using testing::tolerance_for;

Tensor floats(const Shape& shape, const std::vector<float>& values, Device device) {
  return Tensor::from_vector(shape, values, device);
}

Tensor labels_of(const std::vector<std::int64_t>& values, Device device) {
  return Tensor::from_vector({static_cast<std::int64_t>(values.size())}, values, device);
}

const double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_SUITE("ops/softmax") {
  TEST_CASE("softmax and its logarithm match hand-computed values") {
    for_each_device([](Device device) {
      const Tensor x = floats({2, 2}, {0, 0, 0, 1}, device);
      const double tolerance = tolerance_for(DType::float32, device);
      check_close(ops::softmax(x, 1), {0.5, 0.5, 0.268941421, 0.731058579}, tolerance);
      check_close(ops::softmax(x, 0), {0.5, 0.268941421, 0.5, 0.731058579}, tolerance);
      check_close(ops::log_softmax(x, -1), {-0.693147181, -0.693147181, -1.31326169, -0.313261688},
                  tolerance);
    });
  }

  TEST_CASE("rows sum to one and exp of the logarithm is the softmax, at any width") {
    for_each_device([](Device device) {
      for (const std::int64_t cols : {1, 10, 31, 33, 1000, 5000}) {
        CAPTURE(cols);
        const Tensor x = random_tensor({7, cols}, 1, DType::float32, device);
        const Tensor y = ops::softmax(x, 1);
        check_close(ops::reduce(ReduceOp::sum, y, {1}), std::vector<double>(7, 1.0), 1e-5);
        check_close(ops::unary(UnaryOp::exp, ops::log_softmax(x, 1)), y, 1e-5);
      }
    });
  }

  TEST_CASE("more rows than a grid has blocks are all computed") {
    for_each_device([](Device device) {
      const Tensor x = floats({70000, 2}, std::vector<float>(140000, 3.0f), device);
      check_close(ops::softmax(x, 1), std::vector<double>(140000, 0.5), 1e-6);
    });
  }

  TEST_CASE("large inputs do not overflow, and -inf gets no weight") {
    for_each_device([](Device device) {
      const float infinity = std::numeric_limits<float>::infinity();
      const Tensor x = floats({2, 3}, {1000, 1000, -1000, 0, -infinity, 0}, device);
      check_close(ops::softmax(x, 1), {0.5, 0.5, 0, 0.5, 0, 0.5}, 1e-6);
      check_close(ops::log_softmax(floats({2}, {1000, 0}, device), 0), {0, -1000}, 1e-6);
    });
  }

  TEST_CASE("backward is y (g - sum g y), and for the logarithm g - exp(y) sum g") {
    for_each_device([](Device device) {
      const double tolerance = tolerance_for(DType::float32, device);
      const Tensor g = floats({1, 2}, {1, 3}, device);
      const Tensor y = floats({1, 2}, {0.25f, 0.75f}, device);
      check_close(ops::softmax_backward(g, y, 1), {-0.375, 0.375}, tolerance);
      const Tensor log_y = ops::unary(UnaryOp::log, y);
      check_close(ops::log_softmax_backward(g, log_y, 1), {0, 0}, tolerance);
      const Tensor turned = view::transpose(y, 0, 1);
      check_close(ops::softmax_backward(view::transpose(g, 0, 1), turned, 0), {-0.375, 0.375},
                  tolerance);
    });
  }

  TEST_CASE("axes that do not exist or are empty are refused") {
    for_each_device([](Device device) {
      const TensorOptions options{.device = device};
      CHECK_THROWS_WITH_AS((void)ops::softmax(empty({}, options), 0),
                           doctest::Contains("softmax: needs an axis, got a scalar"), ShapeError);
      CHECK_THROWS_WITH_AS((void)ops::softmax(empty({2, 0}, options), 1),
                           doctest::Contains("softmax: axis 1 is empty, got shape [2, 0]"),
                           ShapeError);
      CHECK_THROWS_WITH_AS((void)ops::log_softmax(empty({2, 2}, options), 2),
                           doctest::Contains("log_softmax: axis must be in [-2, 1], got 2"),
                           IndexError);
      CHECK_THROWS_WITH_AS(
          (void)ops::softmax(empty({2}, {.dtype = DType::int32, .device = device}), 0),
          doctest::Contains("softmax: needs a floating dtype, got int32[2]"), DTypeError);
      CHECK(ops::softmax(empty({0, 3}, options), 1).shape() == Shape{0, 3});
    });
  }
}

TEST_SUITE("ops/cross_entropy") {
  TEST_CASE("the loss matches hand-computed values in each reduction") {
    for_each_device([](Device device) {
      const double tolerance = tolerance_for(DType::float32, device);
      const Tensor x = floats({2, 3}, {0, 0, 0, 1, 2, 3}, device);
      const Tensor labels = labels_of({1, 2}, device);
      const double first = std::log(3.0);
      const double second = std::log(std::exp(-2.0) + std::exp(-1.0) + 1.0);
      const auto none = ops::cross_entropy(x, labels, Reduction::none);
      check_close(none.loss, {first, second}, tolerance);
      check_close(none.logsumexp, {first, 3.0 + second}, tolerance);
      check_close(ops::cross_entropy(x, labels, Reduction::sum).loss, {first + second}, tolerance);
      const Tensor mean = ops::cross_entropy(x, labels, Reduction::mean).loss;
      check_close(mean, {(first + second) / 2}, tolerance);
      CHECK(mean.shape() == Shape{});
      const Tensor narrow = ops::cast(labels, DType::int32);
      check_close(ops::cross_entropy(x, narrow, Reduction::mean).loss, mean, 0);
    });
  }

  TEST_CASE("it is the negative log_softmax at the label, for any number of classes") {
    for_each_device([](Device device) {
      for (const std::int64_t cols : {1, 10, 33, 1000}) {
        CAPTURE(cols);
        const Tensor x = random_tensor({5, cols}, 2, DType::float64, device);
        const std::int64_t last = cols - 1;
        const Tensor labels = labels_of({0, last, cols / 2, last, 0}, device);
        const std::vector<double> logs = ops::log_softmax(x, 1).to_vector<double>();
        std::vector<double> want;
        const std::vector<std::int64_t> chosen = labels.to_vector<std::int64_t>();
        for (std::size_t r = 0; r < chosen.size(); ++r) {
          want.push_back(
              -logs[r * static_cast<std::size_t>(cols) + static_cast<std::size_t>(chosen[r])]);
        }
        check_close(ops::cross_entropy(x, labels, Reduction::none).loss, want, 1e-12);
      }
    });
  }

  TEST_CASE("backward is softmax minus one at the label, scaled") {
    for_each_device([](Device device) {
      const double tolerance = tolerance_for(DType::float32, device);
      const Tensor x = floats({2, 2}, {0, 0, 0, 1}, device);
      const Tensor labels = labels_of({0, 1}, device);
      const Tensor logsumexp = ops::cross_entropy(x, labels, Reduction::none).logsumexp;
      const Tensor each = floats({2}, {1, 10}, device);
      check_close(ops::cross_entropy_backward(each, x, labels, logsumexp, Reduction::none),
                  {-0.5, 0.5, 2.68941421, -2.68941421}, tolerance);
      const Tensor one = floats({}, {2}, device);
      check_close(ops::cross_entropy_backward(one, x, labels, logsumexp, Reduction::mean),
                  {-0.5, 0.5, 0.268941421, -0.268941421}, tolerance);
      check_close(ops::cross_entropy_backward(one, x, labels, logsumexp, Reduction::sum),
                  {-1, 1, 0.537882843, -0.537882843}, tolerance);
    });
  }

  TEST_CASE("no rows sum to 0 and have mean NaN") {
    for_each_device([](Device device) {
      const Tensor x = empty({0, 3}, {.device = device});
      const Tensor labels = empty({0}, {.dtype = DType::int64, .device = device});
      check_close(ops::cross_entropy(x, labels, Reduction::sum).loss, {0.0}, 0);
      check_close(ops::cross_entropy(x, labels, Reduction::mean).loss, {kNaN}, 0);
      CHECK(ops::cross_entropy(x, labels, Reduction::none).loss.shape() == Shape{0});
    });
  }

  TEST_CASE("a label out of range raises with its position, once, and its row gets no gradient") {
    const Tensor x = floats({3, 2}, {0, 0, 0, 0, 0, 0}, Device::cpu());
    const Tensor labels = labels_of({0, 2, -1}, Device::cpu());
    CHECK_THROWS_WITH_AS(
        (void)ops::cross_entropy(x, labels, Reduction::mean),
        doctest::Contains("cross_entropy: label 2 at position 1 is out of range [0, 2)"),
        IndexError);
    const Tensor good = labels_of({0, 1, 1}, Device::cpu());
    const Tensor logsumexp = ops::cross_entropy(x, good, Reduction::none).logsumexp;
    const Tensor g = floats({}, {1}, Device::cpu());
    check_close(ops::cross_entropy_backward(g, x, labels, logsumexp, Reduction::sum),
                {-0.5, 0.5, 0, 0, 0, 0}, 1e-6);
  }

  TEST_CASE(
      "every bad batch raises again, with its own label, where the host waits at the latest") {
    for_each_device([](Device device) {
      const Tensor x = floats({2, 2}, {0, 0, 0, 0}, device);
      for (const std::int64_t bad : {5, -7, 9}) {
        const Tensor labels = labels_of({1, bad}, device);
        const std::string text =
            "cross_entropy: label " + std::to_string(bad) + " at position 1 is out of range [0, 2)";
        const auto run_and_wait = [&] {
          (void)ops::cross_entropy(x, labels, Reduction::mean);
          synchronize(device);
        };
        CHECK_THROWS_WITH_AS(run_and_wait(), doctest::Contains(text.c_str()), IndexError);
        CHECK_NOTHROW(synchronize(device));
      }
    });
  }

  TEST_CASE("mistakes are refused") {
    for_each_device([](Device device) {
      const TensorOptions options{.device = device};
      const Tensor x = empty({2, 3}, options);
      const Tensor labels = labels_of({0, 1}, device);
      CHECK_THROWS_WITH_AS((void)ops::cross_entropy(empty({3}, options), labels, Reduction::mean),
                           doctest::Contains("cross_entropy: x must be [rows, classes]"),
                           ShapeError);
      CHECK_THROWS_WITH_AS(
          (void)ops::cross_entropy(x, labels_of({0, 1, 2}, device), Reduction::mean),
          doctest::Contains("cross_entropy: labels must have shape [2], got [3]"), ShapeError);
      CHECK_THROWS_WITH_AS((void)ops::cross_entropy(x, empty({2}, options), Reduction::mean),
                           doctest::Contains("cross_entropy: labels must be int64 or int32"),
                           DTypeError);
    });
  }
}

}  // namespace capstan

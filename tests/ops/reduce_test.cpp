#include "ops/reduce.h"

#include <cmath>
#include <limits>

#include "framework/runtime/parallel.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/view.h"
#include "ops/elementwise.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;
using testing::check_identical;
using testing::for_each_device;

Tensor floats(const Shape& shape, const std::vector<float>& values, Device device) {
  return Tensor::from_vector(shape, values, device);
}

const double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Sum over axis 0 and 2 of a [n0, n1, n2] tensor, on the host in double.
std::vector<double> outer_sums(const Tensor& x) {
  const std::vector<double> values = x.to_vector<double>();
  std::vector<double> sums(static_cast<std::size_t>(x.size(1)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    sums[i / static_cast<std::size_t>(x.size(2)) % sums.size()] += values[i];
  }
  return sums;
}

}  // namespace

TEST_SUITE("ops/reduce") {
  TEST_CASE("each axis of a small matrix reduces to hand-computed values") {
    for_each_device([](Device device) {
      const Tensor x = floats({2, 3}, {1, 5, 3, 4, 2, 6}, device);
      check_close(ops::reduce(ReduceOp::sum, x), {21}, 0);
      check_close(ops::reduce(ReduceOp::sum, x, {0}), {5, 7, 9}, 0);
      check_close(ops::reduce(ReduceOp::sum, x, {1}), {9, 12}, 0);
      check_close(ops::reduce(ReduceOp::mean, x, {-1}), {3, 4}, 1e-6);
      check_close(ops::reduce(ReduceOp::max, x, {0}), {4, 5, 6}, 0);
      check_close(ops::reduce(ReduceOp::min, x, {1}), {1, 2}, 0);
      check_close(ops::reduce(ReduceOp::max, x), {6}, 0);
      CHECK(ops::reduce(ReduceOp::sum, x).shape() == Shape{});
      CHECK(ops::reduce(ReduceOp::sum, x, {0}, true).shape() == Shape{1, 3});
      CHECK(ops::reduce(ReduceOp::sum, x, {0, 1}, true).shape() == Shape{1, 1});
    });
  }

  TEST_CASE("sums over several axes, of any size and layout, match a plain loop") {
    for_each_device([](Device device) {
      const double tolerance = 4 * testing::tolerance_for(DType::float32, device);
      for (const Shape& shape : {Shape{3, 5, 7}, Shape{1, 1, 1}, Shape{70, 33, 129},
                                 Shape{70000, 2, 1}, Shape{1, 300, 40}}) {
        CAPTURE(shape);
        const Tensor x = testing::random_tensor(shape, 4, DType::float32, device);
        check_close(ops::reduce(ReduceOp::sum, x, {0, 2}), outer_sums(x), tolerance);
        const Tensor turned = view::permute(x, {2, 1, 0});
        check_close(ops::reduce(ReduceOp::sum, turned, {0, 2}), outer_sums(x), tolerance);
        const Tensor middle = ops::reduce(ReduceOp::sum, x, {1});
        check_close(ops::reduce(ReduceOp::sum, middle), ops::reduce(ReduceOp::sum, x), 1e-4);
      }
    });
  }

  TEST_CASE("column sums match the sums of the transposed rows") {
    for_each_device([](Device device) {
      const Tensor x = testing::random_tensor({257, 300}, 5, DType::float64, device);
      const Tensor rows = ops::clone(view::transpose(x, 0, 1));
      check_close(ops::reduce(ReduceOp::sum, x, {0}), ops::reduce(ReduceOp::sum, rows, {1}), 1e-12);
      check_identical(ops::reduce(ReduceOp::max, x, {0}), ops::reduce(ReduceOp::max, rows, {1}));
      check_identical(ops::reduce(ReduceOp::min, x, {0}), ops::reduce(ReduceOp::min, rows, {1}));
    });
  }

  TEST_CASE("a million equal numbers sum exactly enough") {
    for_each_device([](Device device) {
      constexpr std::int64_t kCount = 1 << 20;
      const Tensor x = floats({kCount}, std::vector<float>(kCount, 0.1f), device);
      const double want = static_cast<double>(0.1f) * kCount;
      check_close(ops::reduce(ReduceOp::sum, x), {want}, 1e-6);
      const Tensor column = view::expand(floats({1, 2}, {0.1f, 1}, device), {kCount, 2});
      check_close(ops::reduce(ReduceOp::sum, column, {0}), {want, kCount}, 1e-6);
    });
  }

  TEST_CASE("the bits of a sum do not depend on the run") {
    for_each_device([](Device device) {
      const Tensor x = testing::random_tensor({300000}, 6, DType::float32, device);
      const Tensor first = ops::reduce(ReduceOp::sum, x);
      for (int run = 0; run < 5; ++run) check_identical(ops::reduce(ReduceOp::sum, x), first);
    });
  }

  TEST_CASE("the bits of a CPU sum do not depend on the number of threads") {
    const Tensor x = testing::random_tensor({300001}, 7, DType::float32, Device::cpu());
    const int threads = cpu::num_threads();
    const Tensor first = ops::reduce(ReduceOp::sum, x);
    for (const int count : {1, 2, 5}) {
      cpu::set_num_threads(count);
      check_identical(ops::reduce(ReduceOp::sum, x), first);
    }
    cpu::set_num_threads(threads);
  }

  TEST_CASE("bool and integers sum to int64") {
    for_each_device([](Device device) {
      const Tensor bytes = Tensor::from_vector<std::uint8_t>({3}, {200, 200, 200}, device);
      const Tensor sum = ops::reduce(ReduceOp::sum, bytes);
      CHECK(sum.dtype() == DType::int64);
      CHECK(sum.item<std::int64_t>() == 600);
      const Tensor flags = ops::binary(BinaryOp::gt, bytes, 100.0);
      CHECK(ops::reduce(ReduceOp::sum, flags).item<std::int64_t>() == 3);
      CHECK(ops::reduce(ReduceOp::max, bytes).dtype() == DType::uint8);
    });
  }

  TEST_CASE("NaN wins in max, min and argmax, in short and long rows") {
    for_each_device([](Device device) {
      for (const std::int64_t length : {3, 200}) {
        for (const std::int64_t place : {std::int64_t{0}, length / 2, length - 1}) {
          CAPTURE(length);
          CAPTURE(place);
          std::vector<float> values(static_cast<std::size_t>(length), 1.0f);
          values[static_cast<std::size_t>(place)] = std::numeric_limits<float>::quiet_NaN();
          const Tensor x = floats({length}, values, device);
          check_close(ops::reduce(ReduceOp::max, x), {kNaN}, 0);
          check_close(ops::reduce(ReduceOp::min, x), {kNaN}, 0);
          CHECK(ops::argmax(x, 0).item<std::int64_t>() == place);
        }
      }
    });
  }

  TEST_CASE("argmax gives the first of equals along any axis") {
    for_each_device([](Device device) {
      const Tensor x = floats({2, 3}, {1, 7, 7, 9, 7, 9}, device);
      check_close(ops::argmax(x, 1), {1, 0}, 0);
      check_close(ops::argmax(x, 0), {1, 0, 1}, 0);
      check_close(ops::argmax(view::transpose(x, 0, 1), 0), {1, 0}, 0);
      CHECK(ops::argmax(x, -1).dtype() == DType::int64);
      CHECK(ops::argmax(x, -1, true).shape() == Shape{2, 1});
      const Tensor tall = floats({70000, 2}, std::vector<float>(140000, 2.0f), device);
      CHECK(ops::reduce(ReduceOp::max, ops::argmax(tall, 1)).item<std::int64_t>() == 0);
    });
  }

  TEST_CASE("sum_to undoes broadcasting") {
    for_each_device([](Device device) {
      const Tensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6}, device);
      CHECK(ops::sum_to(x, {2, 3}).is_same(x));
      check_close(ops::sum_to(x, {3}), {5, 7, 9}, 0);
      check_close(ops::sum_to(x, {2, 1}), {6, 15}, 0);
      check_close(ops::sum_to(x, {}), {21}, 0);
      CHECK(ops::sum_to(x, {1, 1}).shape() == Shape{1, 1});
      CHECK_THROWS_WITH_AS((void)ops::sum_to(x, {2}),
                           doctest::Contains("sum_to: shapes do not broadcast"), ShapeError);
    });
  }

  TEST_CASE("nothing sums to 0, has mean NaN and no maximum") {
    for_each_device([](Device device) {
      const Tensor x = empty({0, 2}, {.device = device});
      check_close(ops::reduce(ReduceOp::sum, x, {0}), {0, 0}, 0);
      check_close(ops::reduce(ReduceOp::mean, x, {0}), {kNaN, kNaN}, 0);
      CHECK(ops::reduce(ReduceOp::max, x, {1}).shape() == Shape{0});
      CHECK_THROWS_WITH_AS((void)ops::reduce(ReduceOp::max, x, {0}),
                           doctest::Contains("max: nothing to choose from, got shape [0, 2]"),
                           ShapeError);
      CHECK_THROWS_WITH_AS((void)ops::argmax(x, 0),
                           doctest::Contains("argmax: axis 0 is empty, got shape [0, 2]"),
                           ShapeError);
    });
  }

  TEST_CASE("mistakes are refused") {
    for_each_device([](Device device) {
      const Tensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6}, device);
      CHECK_THROWS_WITH_AS((void)ops::reduce(ReduceOp::sum, x, {2}),
                           doctest::Contains("sum: axis must be in [-2, 1], got 2"), IndexError);
      CHECK_THROWS_WITH_AS((void)ops::reduce(ReduceOp::sum, x, {1, -1}),
                           doctest::Contains("sum: axis -1 is given twice, got axes [1, -1]"),
                           ValueError);
      CHECK_THROWS_WITH_AS((void)ops::reduce(ReduceOp::mean, ops::cast(x, DType::int64)),
                           doctest::Contains("mean: needs a floating dtype, got int64[2, 3]"),
                           DTypeError);
    });
  }
}

}  // namespace capstan

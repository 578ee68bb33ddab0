#include "ops/elementwise.h"

#include <cmath>
#include <limits>

#include "framework/tensor/factory.h"
#include "framework/tensor/view.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;
using testing::check_identical;
using testing::for_each_device;
using testing::tolerance_for;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

Tensor floats(const Shape& shape, const std::vector<float>& values, Device device) {
  return Tensor::from_vector(shape, values, device);
}

Tensor integers(const Shape& shape, const std::vector<std::int64_t>& values, Device device) {
  return Tensor::from_vector(shape, values, device);
}

/// Compares with the standard library, in double, at points that cover the interesting range.
void check_against(UnaryOp op, double (*reference)(double), double low, double high,
                   Device device) {
  constexpr int kPoints = 1003;  // odd: vector loops have a rest
  std::vector<float> x;
  std::vector<double> want;
  for (int i = 0; i < kPoints; ++i) {
    x.push_back(static_cast<float>(low + (high - low) * i / (kPoints - 1)));
    want.push_back(reference(static_cast<double>(x.back())));
  }
  CAPTURE(ops::name_of(op));
  check_close(ops::unary(op, floats({kPoints}, x, device)), want,
              tolerance_for(DType::float32, device));
}

double gelu(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }
double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

}  // namespace

TEST_SUITE("ops/elementwise") {
  TEST_CASE("arithmetic matches hand-computed values") {
    for_each_device([](Device device) {
      const Tensor a = floats({4}, {1, -2, 3, 8}, device);
      const Tensor b = floats({4}, {2, 4, -3, 2}, device);
      check_close(ops::binary(BinaryOp::add, a, b), {3, 2, 0, 10}, 0);
      check_close(ops::binary(BinaryOp::sub, a, b), {-1, -6, 6, 6}, 0);
      check_close(ops::binary(BinaryOp::mul, a, b), {2, -8, -9, 16}, 0);
      check_close(ops::binary(BinaryOp::div, a, b), {0.5, -0.5, -1, 4}, 0);
      check_close(ops::binary(BinaryOp::pow, a, b), {1, 16, 1.0 / 27, 64}, 1e-6);
      check_close(ops::binary(BinaryOp::maximum, a, b), {2, 4, 3, 8}, 0);
      check_close(ops::binary(BinaryOp::minimum, a, b), {1, -2, -3, 2}, 0);
    });
  }

  TEST_CASE("a number may stand on either side and takes the dtype of the tensor") {
    for_each_device([](Device device) {
      const Tensor x = integers({3}, {1, 2, 3}, device);
      const Tensor left = ops::binary(BinaryOp::sub, 10.0, x);
      const Tensor right = ops::binary(BinaryOp::sub, x, 10.0);
      CHECK(left.dtype() == DType::int64);
      CHECK(left.to_vector<std::int64_t>() == std::vector<std::int64_t>{9, 8, 7});
      CHECK(right.to_vector<std::int64_t>() == std::vector<std::int64_t>{-9, -8, -7});
      CHECK_THROWS_WITH_AS((void)ops::binary(BinaryOp::mul, x, 0.5),
                           doctest::Contains("mul: a int64 tensor cannot hold 0.5"), DTypeError);
    });
  }

  TEST_CASE("comparisons give bool, logic works on bool") {
    for_each_device([](Device device) {
      const Tensor a = floats({3}, {1, 2, 3}, device);
      const Tensor b = floats({3}, {2, 2, 2}, device);
      CHECK(ops::binary(BinaryOp::eq, a, b).dtype() == DType::boolean);
      check_close(ops::binary(BinaryOp::eq, a, b), {0, 1, 0}, 0);
      check_close(ops::binary(BinaryOp::ne, a, b), {1, 0, 1}, 0);
      check_close(ops::binary(BinaryOp::lt, a, b), {1, 0, 0}, 0);
      check_close(ops::binary(BinaryOp::le, a, 2.0), {1, 1, 0}, 0);
      check_close(ops::binary(BinaryOp::gt, 2.0, a), {1, 0, 0}, 0);
      const Tensor ge = ops::binary(BinaryOp::ge, a, b);
      const Tensor lt = ops::binary(BinaryOp::lt, a, 3.0);
      check_close(ge, {0, 1, 1}, 0);
      check_close(ops::binary(BinaryOp::logical_and, ge, lt), {0, 1, 0}, 0);
      check_close(ops::binary(BinaryOp::logical_or, ge, lt), {1, 1, 1}, 0);
      check_close(ops::unary(UnaryOp::logical_not, integers({3}, {0, 1, -5}, device)), {1, 0, 0},
                  0);
    });
  }

  TEST_CASE("functions agree with the standard library over their range") {
    for_each_device([](Device device) {
      check_against(UnaryOp::exp, std::exp, -20, 10, device);
      check_against(UnaryOp::expm1, std::expm1, -20, 10, device);
      check_against(UnaryOp::log, std::log, 1e-6, 50, device);
      check_against(UnaryOp::log1p, std::log1p, -0.99, 50, device);
      check_against(UnaryOp::sqrt, std::sqrt, 0, 50, device);
      check_against(UnaryOp::sin, std::sin, -7, 7, device);
      check_against(UnaryOp::cos, std::cos, -7, 7, device);
      check_against(UnaryOp::tanh, std::tanh, -12, 12, device);
      check_against(UnaryOp::erf, std::erf, -5, 5, device);
      check_against(UnaryOp::sigmoid, sigmoid, -30, 30, device);
      check_against(UnaryOp::gelu, gelu, -8, 8, device);
      check_against(UnaryOp::floor, std::floor, -3, 3, device);
      check_against(UnaryOp::ceil, std::ceil, -3, 3, device);
      check_against(UnaryOp::round, std::nearbyint, -3, 3, device);
    });
  }

  TEST_CASE("float functions are good to a few units in the last place") {
    const auto worst = [](UnaryOp op, double (*reference)(double), const std::vector<float>& x) {
      const auto size = static_cast<std::int64_t>(x.size());
      const auto got = ops::unary(op, floats({size}, x, Device::cpu())).to_vector<double>();
      double error = 0.0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double want = reference(static_cast<double>(x[i]));
        error = std::max(error, std::abs(got[i] - want) / std::abs(want));
      }
      return error;
    };
    std::vector<float> wide;
    std::vector<float> positive;
    for (int i = 1; i < 4000; ++i) {
      wide.push_back(static_cast<float>(i % 2 == 0 ? 1 : -1) * static_cast<float>(i) * 0.02f);
      positive.push_back(std::ldexp(1.0f + static_cast<float>(i) / 4000.0f, i % 200 - 100));
    }
    CHECK(worst(UnaryOp::exp, std::exp, wide) < 3e-7);
    CHECK(worst(UnaryOp::tanh, std::tanh, wide) < 3e-7);
    CHECK(worst(UnaryOp::tanh, std::tanh, positive) < 3e-7);
    CHECK(worst(UnaryOp::log, std::log, positive) < 3e-7);
  }

  TEST_CASE("functions treat infinities, NaN and the ends of the range as the standard does") {
    for_each_device([](Device device) {
      const float infinity = std::numeric_limits<float>::infinity();
      const float nan = std::numeric_limits<float>::quiet_NaN();
      const Tensor x = floats({6}, {infinity, -infinity, nan, 0, 100, -120}, device);
      const double tolerance = tolerance_for(DType::float32, device);
      check_close(ops::unary(UnaryOp::exp, x), {kInfinity, 0, kNaN, 1, kInfinity, 0}, tolerance);
      check_close(ops::unary(UnaryOp::log, x),
                  {kInfinity, kNaN, kNaN, -kInfinity, std::log(100.0), kNaN}, tolerance);
      check_close(ops::unary(UnaryOp::tanh, x), {1, -1, kNaN, 0, 1, -1}, tolerance);
      check_close(ops::unary(UnaryOp::sigmoid, x), {1, 0, kNaN, 0.5, 1, 0}, tolerance);
      check_close(ops::unary(UnaryOp::relu, x), {kInfinity, 0, kNaN, 0, 100, 0}, 0);
      check_close(ops::unary(UnaryOp::log, floats({1}, {1e-40f}, device)), {std::log(1e-40)}, 1e-5);
    });
  }

  TEST_CASE("NaN wins in maximum and minimum, on either side") {
    for_each_device([](Device device) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      const Tensor a = floats({2}, {nan, 1}, device);
      const Tensor b = floats({2}, {1, nan}, device);
      check_close(ops::binary(BinaryOp::maximum, a, b), {kNaN, kNaN}, 0);
      check_close(ops::binary(BinaryOp::minimum, a, b), {kNaN, kNaN}, 0);
    });
  }

  TEST_CASE("integer operations keep their dtype") {
    for_each_device([](Device device) {
      const Tensor x = integers({4}, {-3, 0, 2, 5}, device);
      check_close(ops::unary(UnaryOp::neg, x), {3, 0, -2, -5}, 0);
      check_close(ops::unary(UnaryOp::abs, x), {3, 0, 2, 5}, 0);
      check_close(ops::unary(UnaryOp::sign, x), {-1, 0, 1, 1}, 0);
      check_close(ops::unary(UnaryOp::square, x), {9, 0, 4, 25}, 0);
      CHECK(ops::unary(UnaryOp::square, x).dtype() == DType::int64);
    });
  }

  TEST_CASE("the gradient kernels are the derivatives") {
    for_each_device([](Device device) {
      const Tensor g = floats({3}, {1, 2, 10}, device);
      const Tensor y = floats({3}, {0.5f, -0.5f, 0}, device);
      check_close(ops::binary(BinaryOp::relu_backward, g, y), {1, 0, 0}, 0);
      check_close(ops::binary(BinaryOp::tanh_backward, g, y), {0.75, 1.5, 10}, 1e-6);
      check_close(ops::binary(BinaryOp::sigmoid_backward, g, y), {0.25, -1.5, 0}, 1e-6);
      // Phi(x) + x phi(x) at 0.5, -0.5, 0.
      check_close(ops::binary(BinaryOp::gelu_backward, g, y), {0.867495128, 0.265009744, 5}, 1e-6);
    });
  }

  TEST_CASE("operands broadcast from either side, in rows, columns and scalars") {
    for_each_device([](Device device) {
      const Tensor matrix = floats({2, 3}, {1, 2, 3, 4, 5, 6}, device);
      const Tensor row = floats({3}, {10, 20, 30}, device);
      const Tensor column = floats({2, 1}, {100, 200}, device);
      const Tensor scalar = floats({}, {1000}, device);
      check_close(ops::binary(BinaryOp::add, matrix, row), {11, 22, 33, 14, 25, 36}, 0);
      check_close(ops::binary(BinaryOp::sub, row, matrix), {9, 18, 27, 6, 15, 24}, 0);
      check_close(ops::binary(BinaryOp::add, matrix, column), {101, 102, 103, 204, 205, 206}, 0);
      check_close(ops::binary(BinaryOp::add, column, row), {110, 120, 130, 210, 220, 230}, 0);
      check_close(ops::binary(BinaryOp::add, scalar, row), {1010, 1020, 1030}, 0);
      CHECK(ops::binary(BinaryOp::add, column, row).shape() == Shape{2, 3});
    });
  }

  TEST_CASE("strided operands give what their dense copies give") {
    for_each_device([](Device device) {
      const Tensor x = testing::random_tensor({5, 7, 6}, 1, DType::float32, device);
      const Tensor turned = view::permute(x, {2, 0, 1});
      const Tensor sliced = view::slice(turned, 2, 1, 7, 2);
      const Tensor other = testing::random_tensor({5, 3}, 2, DType::float32, device);
      check_identical(ops::binary(BinaryOp::mul, sliced, other),
                      ops::binary(BinaryOp::mul, ops::clone(sliced), other));
      check_identical(ops::unary(UnaryOp::neg, sliced),
                      ops::unary(UnaryOp::neg, ops::clone(sliced)));
      const std::vector<float> all = x.to_vector<float>();
      std::vector<double> want;
      for (int i = 0; i < 6; ++i) {
        for (int j = 0; j < 5; ++j) {
          for (int k = 1; k < 7; k += 2) {
            want.push_back(static_cast<double>(all[static_cast<std::size_t>((j * 7 + k) * 6 + i)]));
          }
        }
      }
      check_close(ops::clone(sliced), want, 0);
    });
  }

  TEST_CASE("large tensors, which several threads or blocks share, have every element right") {
    for_each_device([](Device device) {
      constexpr std::int64_t kRows = 70001;
      std::vector<float> values(kRows * 3);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
      const Tensor x = floats({kRows, 3}, values, device);
      const Tensor y = ops::binary(BinaryOp::add, x, floats({3}, {0, 1, 2}, device));
      std::vector<double> want(values.begin(), values.end());
      for (std::size_t i = 0; i < want.size(); ++i) want[i] += static_cast<double>(i % 3);
      check_close(y, want, 0);
      check_close(ops::clone(view::transpose(view::transpose(y, 0, 1), 0, 1)), want, 0);
    });
  }

  TEST_CASE("in place the result may be an operand, and an uneven overlap is still right") {
    for_each_device([](Device device) {
      const Tensor x = floats({2, 2}, {1, 2, 3, 4}, device);
      const std::int64_t version = x.storage()->version();
      ops::binary_out(BinaryOp::mul, x, 2.0, x);
      check_close(x, {2, 4, 6, 8}, 0);
      CHECK(x.storage()->version() == version + 1);
      ops::binary_out(BinaryOp::add, x, view::transpose(x, 0, 1), x);
      check_close(x, {4, 10, 10, 16}, 0);
      ops::binary_out(BinaryOp::sub, x, view::select(x, 0, 0), x);
      check_close(x, {0, 0, 6, 6}, 0);
      ops::unary_out(UnaryOp::neg, x, x);
      check_close(x, {0, 0, -6, -6}, 0);
      ops::copy(view::slice(x, 1, 1, 2, 1), floats({2, 1}, {7, 9}, device));
      check_close(x, {0, 7, -6, 9}, 0);
    });
  }

  TEST_CASE("where chooses by element and broadcasts") {
    for_each_device([](Device device) {
      const Tensor a = floats({2, 3}, {1, 2, 3, 4, 5, 6}, device);
      const Tensor positive = ops::binary(BinaryOp::gt, a, 3.0);
      check_close(ops::where(positive, a, floats({}, {0}, device)), {0, 0, 0, 4, 5, 6}, 0);
      check_close(ops::where(positive, floats({3}, {7, 8, 9}, device), a), {1, 2, 3, 7, 8, 9}, 0);
      CHECK_THROWS_WITH_AS((void)ops::where(a, a, a),
                           doctest::Contains("where: the condition must be bool, got float32"),
                           DTypeError);
    });
  }

  TEST_CASE("cast converts values, to bool as nonzero, and copy converts while it copies") {
    for_each_device([](Device device) {
      const Tensor x = floats({4}, {-1.5f, 0, 0.25f, 3.75f}, device);
      check_close(ops::cast(x, DType::int64), {-1, 0, 0, 3}, 0);
      check_close(ops::cast(x, DType::boolean), {1, 0, 1, 1}, 0);
      check_close(ops::cast(ops::cast(x, DType::boolean), DType::float64), {1, 0, 1, 1}, 0);
      CHECK(ops::cast(x, DType::float32).is_same(x));
      const Tensor y = empty({2, 4}, {.dtype = DType::int32, .device = device});
      ops::copy(y, x);
      check_close(y, {-1, 0, 0, 3, -1, 0, 0, 3}, 0);
    });
  }

  TEST_CASE("copy moves between devices, from and to strided views") {
    for (const Device device : testing::devices()) {
      const Tensor host = floats({2, 3}, {1, 2, 3, 4, 5, 6}, Device::cpu());
      const Tensor there = empty({3, 2}, {.device = device});
      ops::copy(there, view::transpose(host, 0, 1));
      const Tensor back = empty({3, 4}, {.dtype = DType::float64});
      ops::fill(back, -1);
      ops::copy(view::slice(back, 1, 0, 4, 2), there);
      check_close(back, {1, -1, 4, -1, 2, -1, 5, -1, 3, -1, 6, -1}, 0);
    }
  }

  TEST_CASE("contiguous copies only what is not dense") {
    for_each_device([](Device device) {
      const Tensor x = floats({2, 2}, {1, 2, 3, 4}, device);
      CHECK(ops::contiguous(x).is_same(x));
      const Tensor turned = ops::contiguous(view::transpose(x, 0, 1));
      CHECK(turned.is_contiguous());
      check_close(turned, {1, 3, 2, 4}, 0);
    });
  }

  TEST_CASE("empty tensors pass through") {
    for_each_device([](Device device) {
      const Tensor x = empty({0, 3}, {.device = device});
      CHECK(ops::unary(UnaryOp::exp, x).shape() == Shape{0, 3});
      CHECK(ops::binary(BinaryOp::add, x, empty({1, 3}, {.device = device})).numel() == 0);
      CHECK_NOTHROW(ops::fill(x, 1.0));
      CHECK_NOTHROW(ops::copy(x, x));
    });
  }

  TEST_CASE("mistakes are refused with the operation and the values") {
    for_each_device([](Device device) {
      const Tensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6}, device);
      const Tensor whole = integers({3}, {1, 2, 3}, device);
      CHECK_THROWS_WITH_AS((void)ops::binary(BinaryOp::add, x, whole),
                           doctest::Contains("add: dtypes differ, got float32[2, 3] on"),
                           DTypeError);
      CHECK_THROWS_WITH_AS((void)ops::binary(BinaryOp::mul, x, floats({2}, {1, 2}, device)),
                           doctest::Contains("mul: shapes do not broadcast, got [2, 3] and [2]"),
                           ShapeError);
      CHECK_THROWS_WITH_AS((void)ops::unary(UnaryOp::exp, whole),
                           doctest::Contains("exp: needs a floating dtype, got int64[3]"),
                           DTypeError);
      CHECK_THROWS_WITH_AS((void)ops::binary(BinaryOp::div, whole, 2.0),
                           doctest::Contains("div: needs a floating dtype, got int64[3]"),
                           DTypeError);
      CHECK_THROWS_WITH_AS((void)ops::unary(UnaryOp::neg, ops::cast(x, DType::boolean)),
                           doctest::Contains("neg: needs a numeric dtype, got bool[2, 3]"),
                           DTypeError);
      CHECK_THROWS_WITH_AS((void)ops::binary(BinaryOp::logical_and, x, x),
                           doctest::Contains("logical_and: needs bool, got float32[2, 3]"),
                           DTypeError);
      CHECK_THROWS_WITH_AS(ops::binary_out(BinaryOp::add, x, 1.0, floats({3}, {1, 2, 3}, device)),
                           doctest::Contains("add: the result has shape [2, 3], got a y of shape"),
                           ShapeError);
      CHECK_THROWS_WITH_AS(ops::copy(floats({3}, {1, 2, 3}, device), x),
                           doctest::Contains("copy: cannot shrink shape [2, 3] to [3]"),
                           ShapeError);
      const Tensor stretched = view::expand(floats({1, 3}, {1, 2, 3}, device), {2, 3});
      CHECK_THROWS_WITH_AS(ops::binary_out(BinaryOp::add, x, 1.0, stretched),
                           doctest::Contains("add: cannot write to a tensor that was expanded"),
                           ValueError);
      check_close(stretched, {1, 2, 3, 1, 2, 3}, 0);
    });
  }

  TEST_CASE("tensors on different devices are refused") {
    if (!testing::needs_gpu()) return;
    const Tensor host = floats({2}, {1, 2}, Device::cpu());
    const Tensor there = floats({2}, {1, 2}, Device::gpu());
    CHECK_THROWS_WITH_AS((void)ops::binary(BinaryOp::add, host, there),
                         doctest::Contains("add: operands are on different devices, got "
                                           "float32[2] on cpu and float32[2] on gpu:0"),
                         DeviceError);
  }
}

}  // namespace capstan

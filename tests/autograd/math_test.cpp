#include "autograd/math.h"

#include <cmath>
#include <numbers>

#include "autograd/arithmetic.h"
#include "autograd/reduce.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;

struct Sample {
  const char* name;
  Tensor (*function)(const Tensor&, Where);
  double x;
  double y;
  double slope;
};

// Values by hand or from tables of the functions.
constexpr double kE = std::numbers::e;
constexpr double kRoot = std::numbers::sqrt2;
constexpr Sample kSamples[] = {
    {"abs", abs, -3, 3, -1},
    {"abs at the kink", abs, 0, 0, 0},
    {"sign", sign, -3, -1, 0},
    {"square", square, -3, 9, -6},
    {"exp", exp, 1, kE, kE},
    {"expm1", expm1, 1, kE - 1, kE},
    {"log", log, 4, 2 * std::numbers::ln2, 0.25},
    {"log1p", log1p, 3, 2 * std::numbers::ln2, 0.25},
    {"sqrt", sqrt, 4, 2, 0.25},
    {"rsqrt", rsqrt, 4, 0.5, -0.0625},
    {"reciprocal", reciprocal, 4, 0.25, -0.0625},
    {"sin", sin, std::numbers::pi / 4, kRoot / 2, kRoot / 2},
    {"cos", cos, std::numbers::pi / 4, kRoot / 2, -kRoot / 2},
    {"erf", erf, 0, 0, 2 * std::numbers::inv_sqrtpi},
    {"floor", floor, 1.5, 1, 0},
    {"ceil", ceil, 1.5, 2, 0},
    {"round", round, 2.5, 2, 0},
    {"relu", relu, 2, 2, 1},
    {"relu of a negative", relu, -2, 0, 0},
    {"relu at the kink", relu, 0, 0, 0},
    {"gelu", gelu, 1, 0.8413447460685429, 1.0833154705876864},
    {"tanh", tanh, 0.5, 0.46211715726000975, 0.7864477329659274},
    {"sigmoid", sigmoid, std::numbers::ln2, 2.0 / 3, 2.0 / 9},
};

}  // namespace

TEST_SUITE("autograd/math") {
  TEST_CASE("values and slopes are the known ones, in both precisions") {
    testing::for_each_device([](Device device) {
      for (const DType dtype : {DType::float32, DType::float64}) {
        for (const Sample& sample : kSamples) {
          CAPTURE(sample.name);
          const Tensor x =
              Tensor::from_vector<double>({1}, {sample.x}, device).to(dtype).set_requires_grad();
          const Tensor y = sample.function(x, {});
          const double tolerance = testing::tolerance_for(dtype, device);
          check_close(y, {sample.y}, tolerance);
          y.backward();
          check_close(x.grad(), {sample.slope}, tolerance);
        }
      }
    });
  }

  TEST_CASE("slopes for further differentiation equal the fused ones") {
    testing::for_each_device([](Device device) {
      for (const Sample& sample : kSamples) {
        CAPTURE(sample.name);
        const Tensor x = Tensor::from_vector<double>({1}, {sample.x}, device).set_requires_grad();
        sample.function(x, {}).backward({}, {.create_graph = true});
        check_close(x.grad(), {sample.slope}, testing::tolerance_for(DType::float64, device));
        x.set_grad({});  // its history holds x
      }
    });
  }

  TEST_CASE("empty tensors have empty gradients") {
    const Tensor x = Tensor::from_vector<float>({0, 3}, {}).set_requires_grad();
    sum(gelu(exp(x))).backward();
    CHECK(x.grad().shape() == Shape{0, 3});
  }

  TEST_CASE("integers are served where that makes sense, without gradient") {
    const Tensor x = Tensor::from_vector<std::int64_t>({3}, {-2, 0, 3});
    check_close(abs(x), {2, 0, 3}, 0);
    check_close(sign(x), {-1, 0, 1}, 0);
    check_close(square(x), {4, 0, 9}, 0);
    CHECK_THROWS_WITH_AS((void)exp(x), doctest::Contains("exp"), DTypeError);
  }
}

}  // namespace capstan

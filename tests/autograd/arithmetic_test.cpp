#include "autograd/arithmetic.h"

#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/reduce.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;

Tensor leaf(const Shape& shape, const std::vector<double>& values, Device device) {
  return Tensor::from_vector(shape, values, device).set_requires_grad();
}

}  // namespace

TEST_SUITE("autograd/arithmetic") {
  TEST_CASE("operators mix tensors and numbers") {
    testing::for_each_device([](Device device) {
      const Tensor x = leaf({2}, {1, 4}, device);
      const Tensor y = (2 * x + 1.0 - x / 2 - -x) * x;
      const double tolerance = testing::tolerance_for(DType::float64, device);
      check_close(y, {3.5, 44}, tolerance);
      y.backward(Tensor::from_vector<double>({2}, {1, 1}, device));
      check_close(x.grad(), {6, 21}, tolerance);
    });
  }

  TEST_CASE("gradients of broadcast operands are sums") {
    testing::for_each_device([](Device device) {
      const Tensor a = leaf({2, 1}, {1, 2}, device);
      const Tensor b = leaf({3}, {10, 20, 30}, device);
      sum(a * b).backward();
      const double tolerance = testing::tolerance_for(DType::float64, device);
      CHECK(a.grad().shape() == Shape{2, 1});
      check_close(a.grad(), {60, 60}, tolerance);
      check_close(b.grad(), {3, 3, 3}, tolerance);
    });
  }

  TEST_CASE("an operand without gradient is not kept for backward") {
    const Tensor x = leaf({2}, {1, 2}, Device::cpu());
    const Tensor data = Tensor::from_vector<double>({2}, {5, 7});
    const Tensor scaled = x * data;
    const Tensor shifted = x + data;
    data.fill_(0);
    CHECK_THROWS_AS(sum(scaled).backward(), GradError);
    sum(shifted).backward();
    check_close(x.grad(), {1, 1}, 0);

    const Tensor factor = Tensor::from_vector<double>({2}, {5, 7}).set_requires_grad();
    const Tensor fixed = Tensor::from_vector<double>({2}, {1, 2});
    const Tensor product = fixed * factor;
    {
      const NoGradGuard no_grad;
      factor.fill_(0);
    }
    sum(product).backward();
    check_close(factor.grad(), {1, 2}, 0);
  }

  TEST_CASE("equal elements share the gradient of maximum and minimum") {
    testing::for_each_device([](Device device) {
      const Tensor a = leaf({3}, {1, 2, 3}, device);
      const Tensor b = leaf({3}, {3, 2, 1}, device);
      sum(maximum(a, b)).backward();
      check_close(a.grad(), {0, 0.5, 1}, 0);
      check_close(b.grad(), {1, 0.5, 0}, 0);
      a.set_grad({});
      sum(minimum(a, 2)).backward();
      check_close(a.grad(), {1, 0.5, 0}, 0);
    });
  }

  TEST_CASE("pow has finite gradients at zero") {
    testing::for_each_device([](Device device) {
      const Tensor a = leaf({4}, {0, 0, 0, 2}, device);
      const Tensor b = leaf({4}, {0, 1, 2, 3}, device);
      sum(pow(a, b)).backward();
      const double tolerance = testing::tolerance_for(DType::float64, device);
      check_close(a.grad(), {0, 1, 0, 12}, tolerance);
      check_close(b.grad(), {0, 0, 0, 5.545177444479562}, tolerance);
      a.set_grad({});
      sum(pow(a, 0)).backward();
      check_close(a.grad(), {0, 0, 0, 0}, 0);
    });
  }

  TEST_CASE("where sends gradients to the chosen side") {
    testing::for_each_device([](Device device) {
      const Tensor a = leaf({2, 2}, {1, 2, 3, 4}, device);
      const Tensor b = leaf({}, {9}, device);
      const Tensor y = where(gt(a, 2), a, b);
      check_close(y, {9, 9, 3, 4}, 0);
      sum(y).backward();
      check_close(a.grad(), {0, 0, 1, 1}, 0);
      check_close(b.grad(), {2}, 0);
    });
  }

  TEST_CASE("comparisons give bools without gradient") {
    testing::for_each_device([](Device device) {
      const Tensor x = leaf({3}, {1, 2, 3}, device);
      check_close(eq(x, 2), {0, 1, 0}, 0);
      check_close(ne(x, 2), {1, 0, 1}, 0);
      check_close(lt(x, 2), {1, 0, 0}, 0);
      check_close(le(x, 2), {1, 1, 0}, 0);
      check_close(gt(2, x), {1, 0, 0}, 0);
      check_close(ge(2, x), {1, 1, 0}, 0);
      check_close(logical_and(gt(x, 1), lt(x, 3)), {0, 1, 0}, 0);
      check_close(logical_or(lt(x, 2), gt(x, 2)), {1, 0, 1}, 0);
      check_close(logical_not(eq(x, 2)), {1, 0, 1}, 0);
      CHECK(eq(x, 2).dtype() == DType::boolean);
      CHECK_FALSE(eq(x, 2).requires_grad());
    });
  }

  TEST_CASE("nothing is recorded without grad mode or without a tensor that asks for it") {
    const Tensor x = leaf({1}, {1}, Device::cpu());
    CHECK((x + 1).requires_grad());
    CHECK_FALSE((x.detach() + 1).requires_grad());
    const NoGradGuard no_grad;
    CHECK_FALSE((x + 1).requires_grad());
  }

  TEST_CASE("errors name the operation, the operands and the line") {
    const Tensor a = leaf({2}, {1, 2}, Device::cpu());
    const Tensor b = leaf({3}, {1, 2, 3}, Device::cpu());
    const std::string line = detail::concat("arithmetic_test.cpp:", __LINE__ + 1);
    CHECK_THROWS_WITH_AS((void)(a * b), doctest::Contains("mul"), ShapeError);
    CHECK_THROWS_WITH_AS((void)(a * b), doctest::Contains("[2]"), ShapeError);
    CHECK_THROWS_WITH_AS((void)add(1.0, 2.0),
                         doctest::Contains("add: needs a tensor, got the numbers 1 and 2"),
                         ValueError);
    CHECK_THROWS_WITH_AS((void)neg(Operand(1.5)), doctest::Contains("got the number 1.5"),
                         ValueError);
    std::string message;
    const int expected = __LINE__ + 2;
    try {
      (void)(a + b);
    } catch (const ShapeError& error) {
      message = error.what();
    }
    CHECK(message.find(detail::concat("arithmetic_test.cpp:", expected)) != std::string::npos);
  }
}

}  // namespace capstan

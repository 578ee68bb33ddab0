#include "autograd/grad_check.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <limits>

#include "autograd/arithmetic.h"
#include "autograd/engine.h"
#include "autograd/function.h"
#include "autograd/math.h"
#include "framework/tensor/factory.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_identical;
using testing::for_each_device;
using testing::random_tensor;

using Tensors = std::vector<Tensor>;

Tensor input(const Shape& shape, std::uint64_t seed, Device device = Device::cpu()) {
  return random_tensor(shape, seed, DType::float64, device).set_requires_grad();
}

/// x y^2 with the gradient of y too large by the factor `excess` in one place.
template <int ExcessAt>
struct Faulty : Function<Faulty<ExcessAt>> {
  static constexpr const char* name = "faulty";
  static Tensors forward(FunctionContext& context, const Tensors& inputs) {
    context.save_for_backward(inputs);
    return {inputs[0] * inputs[1] * inputs[1]};
  }
  static Tensors backward(FunctionContext& context, const Tensors& grads) {
    const Tensors saved = context.saved();
    const Tensor factor = ones_like(saved[1]);
    factor.data<double>()[ExcessAt] = 1.25;
    return {grads[0] * saved[1] * saved[1], grads[0] * 2.0 * saved[0] * saved[1] * factor};
  }
};

/// x^2 with a right gradient that hides its dependence on x.
struct HiddenSecond : Function<HiddenSecond> {
  static constexpr const char* name = "hidden_second";
  static Tensors forward(FunctionContext& context, const Tensors& inputs) {
    context.save_for_backward(inputs);
    return {inputs[0] * inputs[0]};
  }
  static Tensors backward(FunctionContext& context, const Tensors& grads) {
    return {grads[0] * 2.0 * context.saved()[0].detach()};
  }
};

TEST_SUITE("autograd/grad_check") {
  TEST_CASE("right gradients pass, of several inputs and outputs") {
    for_each_device([](Device device) {
      const auto function = [](const Tensors& in) {
        return Tensors{in[0] * in[1] + in[2].sum(), (in[0] * in[0]).sum()};
      };
      const Tensors inputs = {input({2, 3}, 1, device), input({3}, 2, device),
                              input({2}, 3, device)};
      CHECK_MESSAGE(grad_check(function, inputs), grad_check(function, inputs).message);
      CHECK_MESSAGE(grad_grad_check(function, inputs), grad_grad_check(function, inputs).message);
    });
  }

  TEST_CASE("a wrong gradient is found, with input, element and both numbers") {
    const Tensor x = Tensor::from_vector({4}, std::vector<double>(4, 2.0)).set_requires_grad();
    const Tensor y = Tensor::from_vector({4}, std::vector<double>(4, 1.0)).set_requires_grad();
    const GradCheckResult result =
        grad_check([](const Tensors& in) { return Faulty<2>::apply(in); }, {x, y});
    CHECK_FALSE(result);
    CHECK_MESSAGE(result.message.find("input 1, element 2: numeric ") != std::string::npos,
                  result.message);
    double numeric = 0.0;
    double analytic = 0.0;
    const std::string numbers = result.message.substr(result.message.find("numeric"));
    REQUIRE(std::sscanf(numbers.c_str(), "numeric %lf, analytic %lf", &numeric, &analytic) == 2);
    CHECK(analytic / numeric == doctest::Approx(1.25));
  }

  TEST_CASE("a wrong second derivative is found") {
    const auto function = [](const Tensors& in) { return HiddenSecond::apply(in); };
    CHECK(grad_check(function, {input({3}, 1)}));
    const GradCheckResult result = grad_grad_check(function, {input({3}, 1)});
    CHECK_FALSE(result);
    CHECK_MESSAGE(result.message.find("input 0, element 0") != std::string::npos, result.message);
  }

  TEST_CASE("a missing gradient and NaN are found") {
    const auto cut = [](const Tensors& in) { return Tensors{in[0] * in[1].detach()}; };
    const GradCheckResult missing = grad_check(cut, {input({3}, 1), input({3}, 2)});
    CHECK_FALSE(missing);
    CHECK(missing.message.find("no gradient arrived") != std::string::npos);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK_FALSE(
        grad_check([=](const Tensors& in) { return Tensors{in[0] * nan}; }, {input({3}, 1)}));
  }

  TEST_CASE("inputs come back bit for bit, also when the function throws") {
    const Tensor x = input({3}, 1);
    const Tensor before = x.clone();
    const Tensor used = (x * x).sum();
    CHECK(grad_check([](const Tensors& in) { return Tensors{in[0] * in[0]}; }, {x}));
    check_identical(x.detach(), before.detach());
    CHECK_FALSE(x.grad().defined());
    used.backward();  // the restored input is as good as untouched

    int calls = 0;
    const auto breaks = [&](const Tensors& in) {
      if (++calls == 3) throw ValueError("function: no");
      return Tensors{in[0] * in[0]};
    };
    CHECK_THROWS_AS((void)grad_check(breaks, {x}), ValueError);
    check_identical(x.detach(), before.detach());
  }

  TEST_CASE("strided inputs and inputs without a gradient are fine") {
    const Tensor matrix = random_tensor({3, 2}, 1, DType::float64);
    const Tensor x = matrix.t().detach().set_requires_grad();
    const Tensor labels = ones({3}, {.dtype = DType::int64});
    const auto function = [](const Tensors& in) {
      return Tensors{in[0] * in[0] * in[1].to(DType::float64), gt(in[0], 0.0)};
    };
    CHECK_MESSAGE(grad_check(function, {x, labels}), grad_check(function, {x, labels}).message);
  }

  TEST_CASE("inputs that cannot be checked are refused") {
    const auto function = [](const Tensors& in) { return Tensors{in[0] * 2.0}; };
    CHECK_THROWS_WITH_AS((void)grad_check(function, {random_tensor({3}, 1, DType::float64)}),
                         doctest::Contains("grad_check: no input requires a gradient"), ValueError);
    CHECK_THROWS_WITH_AS((void)grad_grad_check(function, {ones({3}).set_requires_grad()}),
                         doctest::Contains("grad_grad_check: input 0 is float32"), ValueError);
  }
}

}  // namespace
}  // namespace capstan

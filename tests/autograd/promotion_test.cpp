#include "autograd/arithmetic.h"
#include "autograd/layout.h"
#include "autograd/reduce.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;
using testing::for_each_device;

template <typename T>
Tensor made(const std::vector<T>& values, Device device) {
  return Tensor::from_vector({static_cast<std::int64_t>(values.size())}, values, device);
}

}  // namespace

TEST_SUITE("autograd/promotion") {
  TEST_CASE("operands meet in one dtype and each gradient has that of its operand") {
    for_each_device([](Device device) {
      const Tensor a = made<float>({1, 2}, device).to(DType::float16).set_requires_grad();
      const Tensor b = made<double>({3, 5}, device).set_requires_grad();
      const Tensor y = a * b - b / a;
      CHECK(y.dtype() == DType::float64);
      check_close(y, {0, 7.5}, 0);
      y.sum().backward();
      CHECK(a.grad().dtype() == DType::float16);
      CHECK(b.grad().dtype() == DType::float64);
      check_close(a.grad(), {6, 6.25}, 0);
      check_close(b.grad(), {0, 1.5}, 0);
    });
  }

  TEST_CASE("a tensor without axes and a number are weaker than a tensor with axes") {
    for_each_device([](Device device) {
      const Tensor half = made<float>({1, 2}, device).to(DType::bfloat16);
      const Tensor whole = made<std::int32_t>({1, 2}, device);
      const Tensor one = full({}, 1.0, {.dtype = DType::float64, .device = device});
      CHECK((half + one).dtype() == DType::bfloat16);
      CHECK((half + 1.5).dtype() == DType::bfloat16);
      CHECK((whole + one).dtype() == DType::float64);
      CHECK((whole * 2).dtype() == DType::int32);
      CHECK((whole * 0.5).dtype() == DType::float32);
      check_close(whole * 0.5, {0.5, 1}, 0);
      CHECK((half + half.to(DType::float16)).dtype() == DType::float32);
    });
  }

  TEST_CASE("integers divide to float32") {
    for_each_device([](Device device) {
      const Tensor y = made<std::int64_t>({1, 3}, device) / made<std::int32_t>({2, 2}, device);
      CHECK(y.dtype() == DType::float32);
      check_close(y, {0.5, 1.5}, 0);
    });
  }

  TEST_CASE("comparisons, maximum, where and cat mix dtypes") {
    for_each_device([](Device device) {
      const Tensor a = made<std::int64_t>({1, 2}, device);
      const Tensor b = made<float>({1.5f, 1.5f}, device).set_requires_grad();
      check_close(lt(a, b), {1, 0}, 0);
      check_close(maximum(a, b), {1.5, 2}, 0);
      const Tensor chosen = where(lt(a, b), a, b);
      CHECK(chosen.dtype() == DType::float32);
      check_close(chosen, {1, 1.5}, 0);
      const Tensor joined = cat({a, b.to(DType::float16), b});
      CHECK(joined.dtype() == DType::float32);
      check_close(joined, {1, 2, 1.5, 1.5, 1.5, 1.5}, 0);
      (chosen.sum() + joined.sum()).backward();
      check_close(b.grad(), {2, 3}, 0);
    });
  }

  TEST_CASE("a write in place computes in the common dtype and stores in its own") {
    for_each_device([](Device device) {
      const Tensor x = made<float>({2048, 1}, device).to(DType::float16).set_requires_grad();
      const Tensor factor = made<float>({1.0f, 3.0f}, device).set_requires_grad();
      const Tensor y = x * 1.0;
      y.add_(made<float>({1.5f, 0.0f}, device));  // 1.5 counts: 2049.5 is nearer to 2050
      check_close(y, {2050, 1}, 0);
      y.mul_(factor);
      CHECK(y.dtype() == DType::float16);
      y.to(DType::float32).sum().backward();
      CHECK(x.grad().dtype() == DType::float16);
      check_close(x.grad(), {1, 3}, 0);
      check_close(factor.grad(), {2050, 1}, 0);
    });
  }

  TEST_CASE("integers take no fractions in place and stay as they were") {
    const Tensor whole = made<std::int64_t>({1, 2}, Device::cpu());
    CHECK_THROWS_WITH_AS(whole.add_(made<float>({1, 2}, Device::cpu())),
                         doctest::Contains("add: the result is float32, which cannot be stored in "
                                           "int64[2] on cpu"),
                         DTypeError);
    check_close(whole, {1, 2}, 0);
    whole.add_(made<std::uint8_t>({1, 2}, Device::cpu()));
    check_close(whole, {2, 4}, 0);
  }
}

}  // namespace capstan

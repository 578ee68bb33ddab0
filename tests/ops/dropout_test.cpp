#include "ops/dropout.h"

#include "framework/tensor/factory.h"
#include "framework/tensor/view.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;
using testing::check_identical;
using testing::for_each_device;
using testing::random_tensor;

}  // namespace

TEST_SUITE("ops/dropout") {
  TEST_CASE("what is kept is scaled by 1 / (1 - p), the rest is 0, as the mask says") {
    for_each_device([](Device device) {
      const Tensor x = random_tensor({37, 53}, 1, DType::float32, device);
      const auto [y, mask] = ops::dropout(x, 0.5, Generator(3, device));
      CHECK(mask.dtype() == DType::boolean);
      const Tensor kept = ops::cast(mask, DType::float32);
      check_close(y, ops::binary(BinaryOp::mul, ops::binary(BinaryOp::mul, x, kept), 2.0), 0);
    });
  }

  TEST_CASE("the mask is the Philox words against p, in order") {
    for_each_device([](Device device) {
      const Tensor x = random_tensor({1003}, 2, DType::float64, device);
      const std::vector<double> mask =
          ops::dropout(x, 0.25, Generator(9, device)).mask.to_vector<double>();
      for (std::size_t i = 0; i < mask.size(); ++i) {
        CHECK((mask[i] == 1.0) == (to_uniform(philox(9, i / 4).word[i % 4]) >= 0.25f));
      }
    });
  }

  TEST_CASE("about p of the elements are dropped") {
    for_each_device([](Device device) {
      const Tensor x = random_tensor({200000}, 3, DType::float32, device);
      const Tensor mask = ops::dropout(x, 0.3, Generator(5, device)).mask;
      const auto kept = static_cast<double>(ops::reduce(ReduceOp::sum, mask).item<std::int64_t>());
      CHECK(kept / 200000 == doctest::Approx(0.7).epsilon(0.01));
    });
  }

  TEST_CASE("p = 0 keeps all, p = 1 drops all, and nothing stays empty") {
    for_each_device([](Device device) {
      const Tensor x = random_tensor({5, 5}, 4, DType::float32, device);
      const Generator generator(1, device);
      check_identical(ops::dropout(x, 0.0, generator).y, x);
      check_close(ops::dropout(x, 1.0, generator).y, std::vector<double>(25, 0.0), 0);
      CHECK(ops::dropout(empty({0, 2}, {.device = device}), 0.5, generator).y.numel() == 0);
    });
  }

  TEST_CASE("a strided input is dropped in its own order") {
    for_each_device([](Device device) {
      const Tensor x = random_tensor({6, 4}, 5, DType::float32, device);
      const Tensor turned = view::transpose(x, 0, 1);
      check_identical(ops::dropout(turned, 0.5, Generator(2, device)).y,
                      ops::dropout(ops::clone(turned), 0.5, Generator(2, device)).y);
    });
  }

  TEST_CASE("mistakes are refused") {
    for_each_device([](Device device) {
      const Generator generator(1, device);
      const Tensor x = empty({2}, {.device = device});
      CHECK_THROWS_WITH_AS((void)ops::dropout(x, 1.5, generator),
                           doctest::Contains("dropout: needs p in [0, 1], got 1.5"), ValueError);
      CHECK_THROWS_WITH_AS(
          (void)ops::dropout(empty({2}, {.dtype = DType::int64, .device = device}), 0.5, generator),
          doctest::Contains("dropout: needs a floating dtype, got int64[2]"), DTypeError);
    });
  }
}

}  // namespace capstan

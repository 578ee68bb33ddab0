// float16 and bfloat16 in every operation: the result is that of float64 on the same numbers,
// rounded once.

#include <cmath>
#include <string>
#include <vector>

#include "framework/tensor/factory.h"
#include "ops/creation.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/layout.h"
#include "ops/matmul.h"
#include "ops/optimizer_step.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;
using testing::check_identical;
using testing::for_each_device;
using testing::random_tensor;
using testing::tolerance_for;

/// A body for both dtypes on every device.
template <typename Body>
void for_each_half(const Body& body) {
  for_each_device([&](Device device) {
    for (const DType dtype : {DType::float16, DType::bfloat16}) {
      CAPTURE(dtype);
      body(dtype, device);
    }
  });
}

Tensor wide(const Tensor& x) { return ops::cast(x, DType::float64); }

void check_rounded(const Tensor& got, const Tensor& want) {
  CHECK(got.dtype() != want.dtype());
  check_close(got, want, 0.55 * tolerance_for(got.dtype(), got.device()));
}

/// More than a block of threads of either device takes at once, and odd.
Tensor numbers(DType dtype, Device device, std::uint64_t seed = 1, const Shape& shape = {37, 53}) {
  return random_tensor(shape, seed, dtype, device);
}

}  // namespace

TEST_SUITE("ops/half") {
  TEST_CASE("unary operations round once") {
    for_each_half([](DType dtype, Device device) {
      const Tensor x = numbers(dtype, device);
      const Tensor positive = ops::binary(BinaryOp::add, ops::unary(UnaryOp::abs, x), 0.25);
      for (int i = static_cast<int>(UnaryOp::neg); i < static_cast<int>(UnaryOp::logical_not);
           ++i) {
        const auto op = static_cast<UnaryOp>(i);
        CAPTURE(std::string(ops::name_of(op)));
        const bool needs_positive = op == UnaryOp::log || op == UnaryOp::log1p ||
                                    op == UnaryOp::sqrt || op == UnaryOp::rsqrt ||
                                    op == UnaryOp::reciprocal;
        const Tensor& operand = needs_positive ? positive : x;
        check_rounded(ops::unary(op, operand), ops::unary(op, wide(operand)));
        const Tensor turned = ops::unary(op, operand);
        CHECK(turned.dtype() == dtype);
      }
      check_close(ops::unary(UnaryOp::logical_not, x), ops::unary(UnaryOp::logical_not, wide(x)),
                  0);
    });
  }

  TEST_CASE("binary operations round once, with tensors and with numbers") {
    for_each_half([](DType dtype, Device device) {
      const Tensor a = numbers(dtype, device, 1);
      const Tensor b =
          ops::binary(BinaryOp::add, ops::unary(UnaryOp::abs, numbers(dtype, device, 2)), 0.5);
      const Tensor row = numbers(dtype, device, 3, {53});
      for (const BinaryOp op :
           {BinaryOp::add, BinaryOp::sub, BinaryOp::mul, BinaryOp::div, BinaryOp::maximum,
            BinaryOp::minimum, BinaryOp::relu_backward, BinaryOp::tanh_backward,
            BinaryOp::sigmoid_backward, BinaryOp::gelu_backward}) {
        CAPTURE(std::string(ops::name_of(op)));
        check_rounded(ops::binary(op, a, b), ops::binary(op, wide(a), wide(b)));
        check_rounded(ops::binary(op, row, b), ops::binary(op, wide(row), wide(b)));
        check_rounded(ops::binary(op, a, 0.3), ops::binary(op, wide(a), 0.3));
        check_rounded(ops::binary(op, 0.3, b), ops::binary(op, 0.3, wide(b)));
      }
      check_rounded(ops::binary(BinaryOp::pow, b, row),
                    ops::binary(BinaryOp::pow, wide(b), wide(row)));
      check_rounded(ops::binary(BinaryOp::pow, a, 2.0), ops::binary(BinaryOp::pow, wide(a), 2.0));
      const Tensor y = ops::clone(a);
      ops::binary_out(BinaryOp::mul, y, b, y);
      check_identical(y, ops::binary(BinaryOp::mul, a, b));
    });
  }

  TEST_CASE("arithmetic takes a number as it is, a comparison as the tensor would hold it") {
    for_each_half([](DType dtype, Device device) {
      const Tensor tenth = full({3}, 0.1, {.dtype = dtype, .device = device});
      check_close(ops::binary(BinaryOp::eq, tenth, 0.1), {1, 1, 1}, 0);
      check_close(ops::binary(BinaryOp::lt, 0.1, tenth), {0, 0, 0}, 0);
      // 1 / 3 rounded to 16 bits first would give a product off by 3 in its last place.
      const Tensor large = full({3}, 3072.0, {.dtype = dtype, .device = device});
      check_close(ops::binary(BinaryOp::mul, large, 1.0 / 3.0), {1024, 1024, 1024}, 0);
    });
  }

  TEST_CASE("comparisons and where choose as float64 does") {
    for_each_half([](DType dtype, Device device) {
      const Tensor a = numbers(dtype, device, 1);
      const Tensor b = ops::unary(UnaryOp::round, ops::binary(BinaryOp::mul, a, 2.0));
      for (const BinaryOp op :
           {BinaryOp::eq, BinaryOp::ne, BinaryOp::lt, BinaryOp::le, BinaryOp::gt, BinaryOp::ge}) {
        check_close(ops::binary(op, a, b), ops::binary(op, wide(a), wide(b)), 0);
      }
      const Tensor less = ops::binary(BinaryOp::lt, a, b);
      check_close(ops::where(less, a, b), ops::where(less, wide(a), wide(b)), 0);
    });
  }

  TEST_CASE("conversions between all dtypes keep what both can hold") {
    for_each_half([](DType dtype, Device device) {
      const Tensor small = Tensor::from_vector<std::int32_t>({5}, {0, 1, 2, 100, 255}, device);
      const Tensor x = ops::cast(small, dtype);
      for (const DType other : {DType::float16, DType::bfloat16, DType::float32, DType::float64,
                                DType::int64, DType::int32, DType::uint8}) {
        CAPTURE(other);
        check_close(ops::cast(x, other), {0, 1, 2, 100, 255}, 0);
        check_identical(ops::cast(ops::cast(x, other), dtype), x);
      }
      check_close(ops::cast(x, DType::boolean), {0, 1, 1, 1, 1}, 0);
      const Tensor exact = numbers(DType::float64, device);
      check_rounded(ops::cast(exact, dtype), exact);
    });
  }

  TEST_CASE("factories, host values and printing know both") {
    for_each_half([](DType dtype, Device device) {
      const TensorOptions options{.dtype = dtype, .device = device};
      check_close(full({2}, 1.5, options), {1.5, 1.5}, 0);
      check_close(arange(0, 3, 0.5, options), {0, 0.5, 1, 1.5, 2, 2.5}, 0);
      check_close(eye(2, options), {1, 0, 0, 1}, 0);
      CHECK(full({}, -2.5, options).item() == -2.5);
      CHECK(full({2}, 0.5, options).to_string() == "[0.5, 0.5]");
      CHECK(describe(ones({2}, options)).starts_with(name_of(dtype)));
    });
    const std::vector<BFloat16> values{BFloat16(1.0f), BFloat16(-3.0f)};
    const Tensor x = Tensor::from_vector({2}, values);
    CHECK(x.dtype() == DType::bfloat16);
    CHECK(x.to_vector<BFloat16>()[1].bits() == values[1].bits());
    CHECK(x.data<BFloat16>()[0].bits() == values[0].bits());
  }

  TEST_CASE("reductions sum without rounding in between") {
    for_each_half([](DType dtype, Device device) {
      const Tensor x = numbers(dtype, device, 1, {40, 33, 21});
      for (const Axes& axes : {Axes{}, Axes{0}, Axes{1}, Axes{2}, Axes{0, 2}}) {
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::max, ReduceOp::min}) {
          check_rounded(ops::reduce(op, x, axes), ops::reduce(op, wide(x), axes));
        }
      }
      check_close(ops::argmax(x, 1), ops::argmax(wide(x), 1), 0);
      check_close(ops::argmax(x, 2), ops::argmax(wide(x), 2), 0);
      // In 16 bits this sum would stop at 2048 or 256.
      const Tensor many = ones({10000}, {.dtype = dtype, .device = device});
      check_rounded(ops::reduce(ReduceOp::sum, many), Tensor::from_vector<double>({}, {10000}));
    });
  }

  TEST_CASE("products sum without rounding in between") {
    for_each_half([](DType dtype, Device device) {
      const Tensor a = numbers(dtype, device, 1, {150, 300});
      const Tensor b = numbers(dtype, device, 2, {300, 210});
      check_rounded(ops::matmul(a, b), ops::matmul(wide(a), wide(b)));
      const Tensor a_turned = numbers(dtype, device, 3, {2, 24, 40});
      const Tensor batch = numbers(dtype, device, 4, {2, 24, 16});
      const Tensor turned = ops::contiguous(a_turned);
      check_rounded(ops::matmul(turned.transpose(1, 2), batch),
                    ops::matmul(wide(turned).transpose(1, 2), wide(batch)));
      const Tensor bias = numbers(dtype, device, 5, {150});
      const Tensor x = numbers(dtype, device, 6, {8, 300});
      check_close(ops::linear(x, a, bias), ops::linear(wide(x), wide(a), wide(bias)),
                  tolerance_for(dtype, device));
      check_rounded(ops::linear(x, a, Tensor()), ops::linear(wide(x), wide(a), Tensor()));
    });
  }

  TEST_CASE("softmax and its gradient round once") {
    for_each_half([](DType dtype, Device device) {
      const Tensor x = ops::binary(BinaryOp::mul, numbers(dtype, device), 8.0);
      const Tensor g = numbers(dtype, device, 2);
      for (const int axis : {0, 1}) {
        const Tensor y = ops::softmax(x, axis);
        const Tensor log_y = ops::log_softmax(x, axis);
        check_rounded(y, ops::softmax(wide(x), axis));
        check_rounded(log_y, ops::log_softmax(wide(x), axis));
        check_rounded(ops::softmax_backward(g, y, axis),
                      ops::softmax_backward(wide(g), wide(y), axis));
        check_rounded(ops::log_softmax_backward(g, log_y, axis),
                      ops::log_softmax_backward(wide(g), wide(log_y), axis));
      }
    });
  }

  TEST_CASE("cross-entropy and its gradient round once") {
    for_each_half([](DType dtype, Device device) {
      const Tensor x = ops::binary(BinaryOp::mul, numbers(dtype, device, 1, {6, 5}), 8.0);
      const Tensor labels = Tensor::from_vector<std::int64_t>({6}, {0, 1, 2, 3, 4, 0}, device);
      for (const auto reduction :
           {ops::Reduction::mean, ops::Reduction::sum, ops::Reduction::none}) {
        const auto got = ops::cross_entropy(x, labels, reduction);
        const auto want = ops::cross_entropy(wide(x), labels, reduction);
        check_rounded(got.loss, want.loss);
        const Tensor g = ones_like(got.loss);
        check_rounded(
            ops::cross_entropy_backward(g, x, labels, got.logsumexp, reduction),
            ops::cross_entropy_backward(wide(g), wide(x), labels, want.logsumexp, reduction));
      }
    });
  }

  TEST_CASE("elements are moved as they are, and gradients that meet add up without rounding") {
    for_each_half([](DType dtype, Device device) {
      const Tensor x = numbers(dtype, device, 1, {4, 3});
      const Tensor index = Tensor::from_vector<std::int64_t>({3}, {2, 0, 2}, device);
      check_close(ops::index_select(x, 0, index), ops::index_select(wide(x), 0, index), 0);
      check_close(ops::cat({x, x}, 1), ops::cat({wide(x), wide(x)}, 1), 0);
      check_close(ops::one_hot(index, 3, dtype), {0, 0, 1, 1, 0, 0, 0, 0, 1}, 0);
      const std::int64_t count = 3000;
      const Tensor zeros_index = zeros({count}, {.dtype = DType::int64, .device = device});
      const Tensor g = ones({count, 2}, {.dtype = dtype, .device = device});
      check_rounded(ops::index_select_backward(g, 0, zeros_index, {1, 2}),
                    Tensor::from_vector<double>({1, 2}, {3000, 3000}));
    });
  }

  TEST_CASE("random fills are those of float64, rounded") {
    for_each_half([](DType dtype, Device device) {
      using Fill = void (*)(const Tensor&, const Generator&);
      const Fill fills[] = {
          [](const Tensor& y, const Generator& generator) { ops::uniform(y, -1, 2, generator); },
          [](const Tensor& y, const Generator& generator) { ops::normal(y, 0, 1, generator); },
          [](const Tensor& y, const Generator& generator) { ops::bernoulli(y, 0.3, generator); },
      };
      for (const Fill fill : fills) {
        const Tensor got = empty({1001}, {.dtype = dtype, .device = device});
        const Tensor want = empty({1001}, {.dtype = DType::float64, .device = device});
        fill(got, Generator(7, device));
        fill(want, Generator(7, device));
        check_rounded(got, want);
      }
      const Tensor x = numbers(dtype, device);
      const auto half = ops::dropout(x, 0.3, Generator(5, device));
      const auto full = ops::dropout(wide(x), 0.3, Generator(5, device));
      check_rounded(half.y, full.y);
      check_identical(half.mask, full.mask);
    });
  }

  TEST_CASE("optimisers compute in float32 and round what they keep") {
    for_each_half([](DType dtype, Device device) {
      const auto slot = [&](DType of) {
        const auto made = [&](std::uint64_t seed) {
          return ops::cast(numbers(dtype, device, seed, {300}), of);
        };
        return ops::ParameterSlot{.parameter = made(1),
                                  .grad = made(2),
                                  .state1 = made(3),
                                  .state2 = ops::unary(UnaryOp::square, made(4))};
      };
      const auto compare = [&](const auto& step) {
        ops::ParameterSlot got = slot(dtype);
        ops::ParameterSlot want = slot(DType::float64);
        // Squares of 16-bit numbers round, so both start from the rounded ones.
        ops::copy(want.state2, got.state2);
        step(got);
        step(want);
        check_rounded(got.parameter, want.parameter);
        check_rounded(got.state1, want.state1);
        check_rounded(got.state2, want.state2);
      };
      const auto scalars = [&](const std::vector<double>& hyper) {
        return Tensor::from_vector({static_cast<std::int64_t>(hyper.size())}, hyper, device);
      };
      const auto count = [&] { return full({}, 3, {.dtype = DType::int64, .device = device}); };
      for (const bool nesterov : {false, true}) {
        compare([&](const ops::ParameterSlot& s) {
          ops::sgd_step({s}, scalars({0.1, 0.9, 0.01, 0.0}), count(), nesterov, false);
        });
      }
      compare([&](ops::ParameterSlot s) {
        s.state1 = Tensor();
        ops::sgd_step({s}, scalars({0.1, 0.0, 0.01, 0.0}), count(), false, false);
      });
      for (const bool decoupled : {false, true}) {
        compare([&](const ops::ParameterSlot& s) {
          ops::adam_step({s}, scalars({0.01, 0.9, 0.99, 1e-3, 0.01}), count(), decoupled, false);
        });
      }
    });
  }
}

}  // namespace capstan

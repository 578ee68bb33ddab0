#include <doctest/doctest.h>

#include "autograd/arithmetic.h"
#include "autograd/node.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/write_journal.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;
using testing::needs_gpu;

TEST_SUITE("autograd/tensor_grad") {
  TEST_CASE("requiring a gradient again keeps what has accumulated") {
    const Tensor x = ones({2}).set_requires_grad();
    const Tensor y = (x * 3.0).sum();
    x.set_requires_grad(false);
    CHECK_FALSE(x.requires_grad());
    x.set_requires_grad();
    y.backward();
    check_close(x.grad(), {3, 3}, 0.0);
  }

  TEST_CASE("only floating leaves can require a gradient") {
    CHECK_THROWS_WITH_AS((void)ones({2}, {.dtype = DType::int64}).set_requires_grad(),
                         doctest::Contains("needs a floating dtype, got int64"), DTypeError);
    const Tensor y = ones({2}).set_requires_grad() * 2.0;
    CHECK_FALSE(y.is_leaf());
    CHECK_THROWS_WITH_AS((void)y.set_requires_grad(false), doctest::Contains("detach() it first"),
                         GradError);
    CHECK_FALSE(Tensor().requires_grad());
    CHECK_FALSE(ones({2}).grad().defined());
    CHECK(ones({2}).is_leaf());
  }

  TEST_CASE("detach shows the same memory without history") {
    const Tensor x = ones({2}).set_requires_grad();
    const Tensor y = x.detach();
    CHECK_FALSE(y.requires_grad());
    CHECK(y.raw_data() == x.raw_data());
    CHECK_FALSE((y * 2.0).requires_grad());
  }

  TEST_CASE("set_grad takes what fits and nothing else") {
    const Tensor x = ones({2}).set_requires_grad();
    const Tensor g = full({2}, 5.0);
    x.set_grad(g);
    CHECK(x.grad().is_same(g));
    (x * 2.0).sum().backward();
    check_close(g, {7, 7}, 0.0);
    CHECK_THROWS_WITH_AS(x.set_grad(ones({3})),
                         doctest::Contains("set_grad: the gradient has shape [3], its tensor has "
                                           "[2]"),
                         ShapeError);
    CHECK_THROWS_AS(x.set_grad(ones({2}, {.dtype = DType::float64})), DTypeError);
    CHECK_THROWS_AS(x.set_grad(x), ValueError);
    CHECK_THROWS_WITH_AS((x * 2.0).set_grad(g), doctest::Contains("result of a recorded"),
                         GradError);
    CHECK(x.grad().is_same(g));
    x.set_grad(Tensor());
    CHECK_FALSE(x.grad().defined());
  }

  TEST_CASE("a gradient in overlapping memory is not written") {
    const Tensor x = ones({3}).set_requires_grad();
    const Tensor one = ones({1});
    x.set_grad(one.expand({3}));
    (x * 2.0).sum().backward();
    check_close(x.grad(), {3, 3, 3}, 0.0);
    check_close(one, {1}, 0.0);
  }

  TEST_CASE("set_data changes the memory and keeps the tensor") {
    const Tensor x = ones({2}).set_requires_grad();
    const Tensor same = x;
    (x * 2.0).sum().backward();
    const Tensor gradient = x.grad();
    const Tensor data = full({2}, 7.0);
    x.set_data(data);
    CHECK(same.raw_data() == data.raw_data());
    CHECK(x.requires_grad());
    CHECK(x.grad().is_same(gradient));
    (x * x).sum().backward();
    check_close(x.grad(), {16, 16}, 0.0);
  }

  TEST_CASE("set_data refuses what does not fit") {
    const Tensor x = ones({2}).set_requires_grad();
    CHECK_THROWS_WITH_AS(x.set_data(ones({2}, {.dtype = DType::float64})),
                         doctest::Contains("the tensor is float32, the data float64"), DTypeError);
    x.set_grad(ones({2}));
    CHECK_THROWS_WITH_AS(x.set_data(ones({3})), doctest::Contains("clear the gradient"),
                         ShapeError);
    CHECK_THROWS_AS((x * 2.0).set_data(ones({2})), GradError);
    CHECK(x.shape() == Shape{2});
  }

  TEST_CASE("after another shape hooks stay and old graphs are refused") {
    const Tensor x = ones({2}).set_requires_grad();
    (void)x.register_hook([](const Tensor& grad) { return grad * 10.0; });
    const Tensor old = (x + 1.0).sum();
    x.set_data(ones({3}));
    CHECK_THROWS_WITH_AS(old.backward(), doctest::Contains("another shape or device by set_data"),
                         GradError);
    (x + 1.0).sum().backward();
    check_close(x.grad(), {10, 10, 10}, 0.0);
  }

  TEST_CASE("a journal takes set_grad and set_data back") {
    const Tensor x = ones({2}).set_requires_grad();
    x.set_grad(full({2}, 5.0));
    const Tensor gradient = x.grad();
    const Tensor old = (x + 1.0).sum();
    {
      WriteJournal journal;
      x.set_grad(Tensor());
      x.set_data(zeros({3}));
      journal.rollback();
    }
    CHECK(x.grad().is_same(gradient));
    check_close(x, {1, 1}, 0.0);
    old.backward();
    check_close(x.grad(), {6, 6}, 0.0);
  }

  TEST_CASE("set_data to another device drops the gradient") {
    if (!needs_gpu()) return;
    const Tensor x = ones({2}).set_requires_grad();
    (x * 2.0).sum().backward();
    x.set_data(full({2}, 3.0, {.device = Device::gpu()}));
    CHECK_FALSE(x.grad().defined());
    (x * x).sum().backward();
    check_close(x.grad(), {6, 6}, 1e-5);
  }
}

}  // namespace
}  // namespace capstan

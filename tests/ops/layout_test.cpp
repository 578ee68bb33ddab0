#include "ops/layout.h"

#include "framework/tensor/factory.h"
#include "framework/tensor/view.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;
using testing::check_identical;
using testing::for_each_device;
using testing::random_tensor;

Tensor floats(const Shape& shape, const std::vector<float>& values, Device device) {
  return Tensor::from_vector(shape, values, device);
}

Tensor indices(const Shape& shape, const std::vector<std::int64_t>& values, Device device) {
  return Tensor::from_vector(shape, values, device);
}

}  // namespace

TEST_SUITE("ops/layout") {
  TEST_CASE("cat joins along any axis, strided parts and empty ones too") {
    for_each_device([](Device device) {
      const Tensor a = floats({2, 2}, {1, 2, 3, 4}, device);
      const Tensor b = floats({1, 2}, {5, 6}, device);
      check_close(ops::cat({a, b}, 0), {1, 2, 3, 4, 5, 6}, 0);
      const Tensor side = ops::cat({a, view::transpose(a, 0, 1)}, -1);
      CHECK(side.shape() == Shape{2, 4});
      check_close(side, {1, 2, 1, 3, 3, 4, 2, 4}, 0);
      check_close(ops::cat({empty({0, 2}, {.device = device}), b}, 0), {5, 6}, 0);
    });
  }

  TEST_CASE("slices of what was joined are the parts") {
    for_each_device([](Device device) {
      const Tensor a = random_tensor({3, 5, 4}, 1, DType::float64, device);
      const Tensor b = random_tensor({3, 2, 4}, 2, DType::float64, device);
      const Tensor y = ops::cat({a, b}, 1);
      check_identical(view::slice(y, 1, 0, 5, 1), a);
      check_identical(view::slice(y, 1, 5, 7, 1), b);
    });
  }

  TEST_CASE("cat refuses parts that do not fit, naming the position") {
    for_each_device([](Device device) {
      const Tensor a = empty({2, 2}, {.device = device});
      CHECK_THROWS_WITH_AS((void)ops::cat({}, 0),
                           doctest::Contains("cat: needs at least one tensor"), ValueError);
      CHECK_THROWS_WITH_AS((void)ops::cat({a, empty({2, 3}, {.device = device})}, 0),
                           doctest::Contains("cat: tensor 1 differs in more than axis 0"),
                           ShapeError);
      CHECK_THROWS_WITH_AS(
          (void)ops::cat({a, a, empty({2, 2}, {.dtype = DType::int64, .device = device})}, 0),
          doctest::Contains("cat: tensor 2 has another dtype"), DTypeError);
    });
  }

  TEST_CASE("gather picks along the axis, element by element") {
    for_each_device([](Device device) {
      const Tensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6}, device);
      check_close(ops::gather(x, 1, indices({2, 2}, {2, 0, 1, 1}, device)), {3, 1, 5, 5}, 0);
      check_close(ops::gather(x, 0, indices({1, 3}, {1, 0, 1}, device)), {4, 2, 6}, 0);
      const Tensor narrow = ops::cast(indices({2, 1}, {0, 2}, device), DType::int32);
      check_close(
          ops::gather(view::transpose(ops::clone(view::transpose(x, 0, 1)), 0, 1), 1, narrow),
          {1, 6}, 0);
    });
  }

  TEST_CASE("gather's backward adds repeated indices") {
    for_each_device([](Device device) {
      const Tensor g = floats({2, 2}, {1, 2, 3, 4}, device);
      check_close(ops::gather_backward(g, 1, indices({2, 2}, {2, 0, 1, 1}, device), {2, 3}),
                  {2, 0, 1, 0, 7, 0}, 0);
      const Tensor none = empty({2, 0}, {.dtype = DType::int64, .device = device});
      check_close(ops::gather_backward(empty({2, 0}, {.device = device}), 1, none, {2, 2}),
                  {0, 0, 0, 0}, 0);
    });
  }

  TEST_CASE("index_select takes whole slices and its backward puts them back") {
    for_each_device([](Device device) {
      const Tensor x = floats({3, 2}, {1, 2, 3, 4, 5, 6}, device);
      const Tensor rows = indices({4}, {2, 0, 2, 1}, device);
      check_close(ops::index_select(x, 0, rows), {5, 6, 1, 2, 5, 6, 3, 4}, 0);
      check_close(ops::index_select(x, 1, indices({1}, {1}, device)), {2, 4, 6}, 0);
      const Tensor g = floats({4, 2}, {1, 1, 10, 10, 100, 100, 1000, 1000}, device);
      check_close(ops::index_select_backward(g, 0, rows, {3, 2}), {10, 10, 1000, 1000, 101, 101},
                  0);
    });
  }

  TEST_CASE("index_select is the product with one_hot, and its backward with the transpose") {
    for_each_device([](Device device) {
      const Tensor x = random_tensor({50, 700}, 3, DType::float64, device);
      std::vector<std::int64_t> rows;
      for (std::int64_t i = 0; i < 130; ++i) rows.push_back(i * 7 % 50);
      const Tensor index = indices({130}, rows, device);
      const Tensor choice = ops::one_hot(index, 50, DType::float64);
      check_close(ops::index_select(x, 0, index), ops::matmul(choice, x), 1e-12);
      const Tensor g = random_tensor({130, 700}, 4, DType::float64, device);
      check_close(ops::index_select_backward(g, 0, index, {50, 700}),
                  ops::matmul(view::transpose(choice, 0, 1), g), 1e-12);
    });
  }

  TEST_CASE("one_hot marks the label in any dtype and rank") {
    for_each_device([](Device device) {
      check_close(ops::one_hot(indices({2}, {1, 0}, device), 3), {0, 1, 0, 1, 0, 0}, 0);
      const Tensor flags = ops::one_hot(indices({2, 1}, {0, 1}, device), 2, DType::boolean);
      CHECK(flags.shape() == Shape{2, 1, 2});
      CHECK(flags.dtype() == DType::boolean);
      check_close(flags, {1, 0, 0, 1}, 0);
      CHECK_THROWS_WITH_AS((void)ops::one_hot(indices({1}, {0}, device), 0),
                           doctest::Contains("one_hot: needs at least one class, got 0"),
                           ValueError);
    });
  }

  TEST_CASE("a bad index raises with its position, and later operations run again") {
    const Tensor x = floats({2, 2}, {1, 2, 3, 4}, Device::cpu());
    CHECK_THROWS_WITH_AS((void)ops::gather(x, 0, indices({1, 2}, {0, 5}, Device::cpu())),
                         doctest::Contains("gather: index 5 at position 1 is out of range [0, 2)"),
                         IndexError);
    CHECK_THROWS_WITH_AS(
        (void)ops::index_select(x, 0, indices({3}, {0, 1, -1}, Device::cpu())),
        doctest::Contains("index_select: index -1 at position 2 is out of range [0, 2)"),
        IndexError);
    CHECK_THROWS_WITH_AS((void)ops::one_hot(indices({1}, {3}, Device::cpu()), 3),
                         doctest::Contains("one_hot: label 3 at position 0 is out of range [0, 3)"),
                         IndexError);
    check_close(ops::index_select(x, 0, indices({1}, {1}, Device::cpu())), {3, 4}, 0);
  }

  TEST_CASE("indices of a wrong shape or dtype are refused") {
    for_each_device([](Device device) {
      const Tensor x = empty({2, 3}, {.device = device});
      CHECK_THROWS_WITH_AS((void)ops::gather(x, 1, indices({3, 1}, {0, 0, 0}, device)),
                           doctest::Contains("gather: index must have the sizes of x except"),
                           ShapeError);
      CHECK_THROWS_WITH_AS((void)ops::index_select(x, 0, x),
                           doctest::Contains("index_select: index must be int64 or int32"),
                           DTypeError);
      CHECK_THROWS_WITH_AS((void)ops::index_select(x, 0, indices({1, 1}, {0}, device)),
                           doctest::Contains("index_select: index must have one axis"), ShapeError);
    });
  }
}

}  // namespace capstan

#include "ops/matmul.h"

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
using testing::random_tensor;

/// Rows times columns, on the host in double; rank 2.
std::vector<double> plain_product(const Tensor& a, const Tensor& b) {
  const std::vector<double> left = a.to_vector<double>();
  const std::vector<double> right = b.to_vector<double>();
  const auto m = static_cast<std::size_t>(a.size(0));
  const auto k = static_cast<std::size_t>(a.size(1));
  const auto n = static_cast<std::size_t>(b.size(1));
  std::vector<double> y(m * n);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t l = 0; l < k; ++l) {
      for (std::size_t j = 0; j < n; ++j) y[i * n + j] += left[i * k + l] * right[l * n + j];
    }
  }
  return y;
}

struct Sizes {
  std::int64_t m, n, k;
};

/// The tolerance of a product grows with the length of its sums.
double product_tolerance(DType dtype, std::int64_t k, Device device) {
  return testing::tolerance_for(dtype, device) * (1.0 + static_cast<double>(k) / 16.0);
}

}  // namespace

TEST_SUITE("ops/matmul") {
  TEST_CASE("small products match hand-computed values") {
    for_each_device([](Device device) {
      const Tensor a = Tensor::from_vector<float>({2, 3}, {1, 2, 3, 4, 5, 6}, device);
      const Tensor b = Tensor::from_vector<float>({3, 2}, {7, 8, 9, 10, 11, 12}, device);
      check_close(ops::matmul(a, b), {58, 64, 139, 154}, 0);
      const Tensor vector = Tensor::from_vector<float>({3}, {1, 0, -1}, device);
      check_close(ops::matmul(a, vector), {-2, -2}, 0);
      check_close(ops::matmul(vector, b), {-4, -4}, 0);
      check_close(ops::matmul(vector, vector), {2}, 0);
      CHECK(ops::matmul(a, vector).shape() == Shape{2});
      CHECK(ops::matmul(vector, b).shape() == Shape{2});
      CHECK(ops::matmul(vector, vector).shape() == Shape{});
    });
  }

  TEST_CASE("every size around the tiles and every transposition matches a plain loop") {
    for_each_device([](Device device) {
      for (const DType dtype : {DType::float32, DType::float64}) {
        for (const Sizes& s :
             {Sizes{1, 1, 1}, Sizes{1, 40, 70}, Sizes{4, 17, 33}, Sizes{5, 33, 9},
              Sizes{12, 32, 64}, Sizes{13, 31, 65}, Sizes{11, 10, 401}, Sizes{64, 1, 50},
              Sizes{300, 65, 20}, Sizes{37, 130, 830}, Sizes{128, 96, 257}}) {
          CAPTURE(dtype);
          CAPTURE(s.m);
          CAPTURE(s.n);
          CAPTURE(s.k);
          const Tensor a = random_tensor({s.m, s.k}, 1, dtype, device);
          const Tensor b = random_tensor({s.k, s.n}, 2, dtype, device);
          const Tensor a_turned = view::transpose(ops::clone(view::transpose(a, 0, 1)), 0, 1);
          const Tensor b_turned = view::transpose(ops::clone(view::transpose(b, 0, 1)), 0, 1);
          const std::vector<double> want = plain_product(a, b);
          const double tolerance = product_tolerance(dtype, s.k, device);
          check_close(ops::matmul(a, b), want, tolerance);
          check_close(ops::matmul(a_turned, b), want, tolerance);
          check_close(ops::matmul(a, b_turned), want, tolerance);
          check_close(ops::matmul(a_turned, b_turned), want, tolerance);
        }
      }
    });
  }

  TEST_CASE("slices of larger matrices are used as they lie") {
    for_each_device([](Device device) {
      const Tensor whole = random_tensor({60, 90}, 3, DType::float64, device);
      const Tensor a = view::slice(view::slice(whole, 0, 3, 40, 1), 1, 5, 50, 1);
      const Tensor b = view::slice(whole, 0, 10, 55, 1);
      check_close(ops::matmul(a, b), plain_product(a, b), 1e-12);
      const Tensor every_other = view::slice(whole, 1, 0, 90, 2);
      check_close(ops::matmul(every_other, view::slice(b, 1, 7, 12, 1)),
                  plain_product(every_other, view::slice(b, 1, 7, 12, 1)), 1e-12);
    });
  }

  TEST_CASE("batches multiply matrix by matrix and broadcast") {
    for_each_device([](Device device) {
      const Tensor a = random_tensor({3, 2, 5, 7}, 4, DType::float64, device);
      const Tensor b = random_tensor({2, 7, 6}, 5, DType::float64, device);
      const Tensor y = ops::matmul(a, b);
      REQUIRE(y.shape() == Shape{3, 2, 5, 6});
      for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < 2; ++j) {
          const Tensor left = view::select(view::select(a, 0, i), 0, j);
          check_close(view::select(view::select(y, 0, i), 0, j),
                      plain_product(left, view::select(b, 0, j)), 1e-12);
        }
      }
      const Tensor matrix = random_tensor({7, 4}, 6, DType::float64, device);
      check_close(view::select(view::select(ops::matmul(a, matrix), 0, 2), 0, 1),
                  plain_product(view::select(view::select(a, 0, 2), 0, 1), matrix), 1e-12);
      const Tensor heads = view::transpose(a, 0, 1);
      check_close(view::select(view::select(ops::matmul(heads, matrix), 0, 1), 0, 2),
                  plain_product(view::select(view::select(a, 0, 2), 0, 1), matrix), 1e-12);
      CHECK(ops::matmul(random_tensor({1, 3}, 7, DType::float64, device),
                        random_tensor({4, 3, 2}, 8, DType::float64, device))
                .shape() == Shape{4, 1, 2});
    });
  }

  TEST_CASE("linear is the product with the transposed weight plus the bias on each row") {
    for_each_device([](Device device) {
      const Tensor x = Tensor::from_vector<float>({2, 2}, {1, 2, 3, 4}, device);
      const Tensor weight = Tensor::from_vector<float>({3, 2}, {1, 0, 0, 1, 1, 1}, device);
      const Tensor bias = Tensor::from_vector<float>({3}, {10, 20, 30}, device);
      check_close(ops::linear(x, weight, bias), {11, 22, 33, 13, 24, 37}, 0);
      check_close(ops::linear(x, weight, Tensor()), {1, 2, 3, 3, 4, 7}, 0);
      check_close(ops::linear(view::select(x, 0, 1), weight, bias), {13, 24, 37}, 0);
      const Tensor cube = random_tensor({3, 4, 40}, 9, DType::float64, device);
      const Tensor wide = random_tensor({70, 40}, 10, DType::float64, device);
      const Tensor add = random_tensor({70}, 11, DType::float64, device);
      const Tensor want =
          ops::binary(BinaryOp::add, ops::matmul(cube, view::transpose(wide, 0, 1)), add);
      check_close(ops::linear(cube, wide, add), want, 1e-12);
      check_close(ops::linear(view::transpose(cube, 0, 1), wide, add),
                  ops::contiguous(view::transpose(want, 0, 1)), 1e-12);
    });
  }

  TEST_CASE("the same product has the same bits each time, on one thread too") {
    for_each_device([](Device device) {
      const Tensor a = random_tensor({130, 500}, 12, DType::float32, device);
      const Tensor b = random_tensor({500, 200}, 13, DType::float32, device);
      const Tensor first = ops::matmul(a, b);
      for (int run = 0; run < 5; ++run) check_identical(ops::matmul(a, b), first);
      const int threads = cpu::num_threads();
      cpu::set_num_threads(1);
      check_identical(ops::matmul(a, b), first);
      cpu::set_num_threads(threads);
    });
  }

  TEST_CASE("an infinity in one row stays in that row") {
    for_each_device([](Device device) {
      const Tensor a = Tensor::from_vector<float>({3, 2}, {1, 1, 1e38f, 1e38f, 2, 2}, device);
      const Tensor b = Tensor::from_vector<float>({2, 1}, {10, 10}, device);
      check_close(ops::matmul(a, b), {20, std::numeric_limits<double>::infinity(), 40}, 0);
    });
  }

  TEST_CASE("empty products are empty, and sums over nothing are 0 plus the bias") {
    for_each_device([](Device device) {
      const TensorOptions options{.device = device};
      CHECK(ops::matmul(empty({0, 3}, options), empty({3, 2}, options)).shape() == Shape{0, 2});
      check_close(ops::matmul(empty({2, 0}, options), empty({0, 2}, options)), {0, 0, 0, 0}, 0);
      const Tensor bias = Tensor::from_vector<float>({2}, {1, 2}, device);
      check_close(ops::linear(empty({2, 0}, options), empty({2, 0}, options), bias), {1, 2, 1, 2},
                  0);
    });
  }

  TEST_CASE("mistakes are refused with both shapes") {
    for_each_device([](Device device) {
      const TensorOptions options{.device = device};
      const Tensor x = empty({2, 3}, options);
      CHECK_THROWS_WITH_AS(
          (void)ops::matmul(x, x),
          doctest::Contains("matmul: inner sizes differ, got shapes [2, 3] and [2, 3]"),
          ShapeError);
      CHECK_THROWS_WITH_AS((void)ops::matmul(x, empty({}, options)),
                           doctest::Contains("matmul: operands need at least one axis"),
                           ShapeError);
      CHECK_THROWS_WITH_AS((void)ops::matmul(empty({2, 4, 3}, options), empty({5, 3, 1}, options)),
                           doctest::Contains("matmul: shapes do not broadcast, got [2] and [5]"),
                           ShapeError);
      CHECK_THROWS_WITH_AS(
          (void)ops::linear(x, empty({4, 5}, options), Tensor()),
          doctest::Contains("linear: the last axis of x must be 5 to match weight [4, 5]"),
          ShapeError);
      CHECK_THROWS_WITH_AS((void)ops::linear(x, empty({4, 3}, options), empty({3}, options)),
                           doctest::Contains("linear: bias must have shape [4], got [3]"),
                           ShapeError);
      const Tensor whole = empty({3, 2}, {.dtype = DType::int64, .device = device});
      CHECK_THROWS_WITH_AS((void)ops::matmul(x, whole), doctest::Contains("matmul: dtypes differ"),
                           DTypeError);
      CHECK_THROWS_WITH_AS((void)ops::matmul(whole, view::transpose(whole, 0, 1)),
                           doctest::Contains("matmul: needs a floating dtype, got int64[3, 2]"),
                           DTypeError);
    });
  }
}

}  // namespace capstan

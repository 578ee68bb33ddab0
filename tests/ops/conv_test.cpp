#include "ops/conv.h"

#include "framework/runtime/parallel.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/view.h"
#include "ops/creation.h"
#include "ops/elementwise.h"
#include "tests/support/testing.h"

using namespace capstan;
using ops::ConvOptions;
using testing::check_close;
using testing::check_identical;
using testing::for_each_device;
using testing::random_tensor;
using testing::tolerance_for;

namespace {

struct Case {
  Shape x, weight;
  ConvOptions options;
};

/// The definition, element by element, on the host. `visit(x index, weight index, y index)` for
/// every product.
template <typename Visit>
void for_each_product(const Case& c, const Shape& y, const Visit& visit) {
  const auto [stride, padding, dilation, groups] = c.options;
  const std::int64_t in = c.weight[1];
  const std::int64_t out = c.weight[0] / groups;
  const auto at = [](const Shape& shape, std::int64_t a, std::int64_t b, std::int64_t row,
                     std::int64_t column) {
    return static_cast<std::size_t>(((a * shape[1] + b) * shape[2] + row) * shape[3] + column);
  };
  for (std::int64_t n = 0; n < y[0]; ++n) {
    for (std::int64_t o = 0; o < y[1]; ++o) {
      for (std::int64_t h = 0; h < y[2]; ++h) {
        for (std::int64_t w = 0; w < y[3]; ++w) {
          for (std::int64_t i = 0; i < in; ++i) {
            for (std::int64_t kh = 0; kh < c.weight[2]; ++kh) {
              for (std::int64_t kw = 0; kw < c.weight[3]; ++kw) {
                const std::int64_t row = h * stride.height - padding.height + kh * dilation.height;
                const std::int64_t column = w * stride.width - padding.width + kw * dilation.width;
                if (row < 0 || row >= c.x[2] || column < 0 || column >= c.x[3]) continue;
                visit(at(c.x, n, o / out * in + i, row, column), at(c.weight, o, i, kh, kw),
                      at(y, n, o, h, w));
              }
            }
          }
        }
      }
    }
  }
}

// Every path: tiles and panels that are not full, more than one of each, all groups, depthwise.
const std::vector<Case> kCases = {
    {{2, 3, 20, 19}, {5, 3, 3, 3}, {.padding = 1}},
    {{1, 40, 9, 9}, {7, 40, 3, 3}, {.padding = {0, 1}}},
    {{2, 6, 11, 13},
     {4, 3, 3, 5},
     {.stride = {2, 3}, .padding = 2, .dilation = {1, 2}, .groups = 2}},
    {{2, 5, 18, 17}, {5, 1, 3, 3}, {.padding = 1, .groups = 5}},
    {{2, 4, 9, 12}, {4, 1, 2, 3}, {.stride = 2, .padding = {1, 2}, .dilation = 2, .groups = 4}},
    {{2, 4, 9, 8}, {8, 1, 3, 3}, {.stride = 2, .groups = 4}},
    {{1, 2, 30, 30}, {3, 2, 17, 17}, {.padding = 3}},
    {{3, 3, 1, 1}, {2, 3, 1, 1}, {}},
    {{1, 1, 3, 3}, {1, 1, 1, 1}, {.stride = 1, .padding = 4, .groups = 1}},
    {{1, 2, 2, 3}, {2, 2, 3, 3}, {.stride = 5, .padding = 6}},
};

double tolerance(DType dtype, Device device) { return 10 * tolerance_for(dtype, device); }

}  // namespace

TEST_SUITE("ops/conv") {
  TEST_CASE("a 3x3 kernel over a 3x3 image with padding matches hand-computed values") {
    for_each_device([](Device device) {
      const Tensor x =
          Tensor::from_vector<double>({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, device);
      const Tensor weight = Tensor::from_vector<double>({1, 1, 2, 2}, {1, 0, 0, 10}, device);
      const Tensor bias = Tensor::from_vector<double>({1}, {100}, device);
      check_close(ops::conv2d(x, weight, bias, {}), {151, 162, 184, 195}, 1e-12);
      check_close(ops::conv2d(x, weight, {}, {.stride = 2, .padding = 1}), {10, 30, 70, 95}, 1e-12);
    });
  }

  TEST_CASE("forward and both gradients follow the definition") {
    for_each_device([](Device device) {
      for (const DType dtype : {DType::float64, DType::float32}) {
        for (const Case& c : kCases) {
          CAPTURE(c.x);
          CAPTURE(c.weight);
          // TF32 would need its own tolerance.
          const ConvPolicy before = conv_policy();
          set_conv_policy({.tf32 = false});
          const Tensor x = random_tensor(c.x, 1, dtype, device);
          const Tensor weight = random_tensor(c.weight, 2, dtype, device);
          const Tensor bias = random_tensor({c.weight[0]}, 3, dtype, device);
          const Tensor y = ops::conv2d(x, weight, bias, c.options);
          const Tensor grad = random_tensor(y.shape(), 4, dtype, device);
          const Tensor dx = ops::conv2d_input_gradient(grad, weight, c.x, c.options);
          const Tensor dweight = ops::conv2d_weight_gradient(grad, x, c.weight, c.options);
          set_conv_policy(before);

          const auto x_values = x.to_vector<double>();
          const auto w_values = weight.to_vector<double>();
          const auto b_values = bias.to_vector<double>();
          const auto g_values = grad.to_vector<double>();
          std::vector<double> want_y(g_values.size());
          std::vector<double> want_dx(x_values.size());
          std::vector<double> want_dw(w_values.size());
          const auto plane = static_cast<std::size_t>(y.size(2) * y.size(3));
          for (std::size_t i = 0; i < want_y.size(); ++i) {
            want_y[i] = b_values[i / plane % b_values.size()];
          }
          for_each_product(c, y.shape(), [&](std::size_t xi, std::size_t wi, std::size_t yi) {
            want_y[yi] += x_values[xi] * w_values[wi];
            want_dx[xi] += g_values[yi] * w_values[wi];
            want_dw[wi] += g_values[yi] * x_values[xi];
          });
          check_close(y, want_y, tolerance(dtype, device));
          check_close(dx, want_dx, tolerance(dtype, device));
          check_close(dweight, want_dw, tolerance(dtype, device));
        }
      }
    });
  }

  TEST_CASE("16-bit results are those of float32, rounded, and views are read") {
    for_each_device([](Device device) {
      for (const DType dtype : {DType::float16, DType::bfloat16}) {
        const Tensor half = random_tensor({6, 7, 3, 2}, 1, dtype, device);
        const Tensor x = view::permute(half, {3, 2, 0, 1});  // [2, 3, 6, 7]
        const Tensor weight = random_tensor({4, 3, 3, 3}, 2, dtype, device);
        const Tensor bias = random_tensor({4}, 3, dtype, device);
        const auto wide = [](const Tensor& t) { return ops::cast(t, DType::float64); };
        const Tensor y = ops::conv2d(x, weight, bias, {.padding = 1});
        CHECK(y.dtype() == dtype);
        const double bound = tolerance_for(dtype, device);
        check_close(y, ops::conv2d(wide(x), wide(weight), wide(bias), {.padding = 1}), bound);
        check_close(ops::conv2d_input_gradient(y, weight, x.shape(), {.padding = 1}),
                    ops::conv2d_input_gradient(wide(y), wide(weight), x.shape(), {.padding = 1}),
                    bound);
        check_close(ops::conv2d_weight_gradient(y, x, weight.shape(), {.padding = 1}),
                    ops::conv2d_weight_gradient(wide(y), wide(x), weight.shape(), {.padding = 1}),
                    bound);
      }
    });
  }

  TEST_CASE("results are the same bits on every run and for any number of threads") {
    for_each_device([](Device device) {
      const Tensor x = random_tensor({4, 8, 30, 30}, 1, DType::float32, device);
      const Tensor weight = random_tensor({16, 8, 3, 3}, 2, DType::float32, device);
      const int threads = cpu::num_threads();
      std::vector<Tensor> results;
      for (const int count : {1, 3}) {
        cpu::set_num_threads(count);
        const Tensor y = ops::conv2d(x, weight, {}, {.padding = 1});
        results.push_back(y);
        results.push_back(ops::conv2d_input_gradient(y, weight, x.shape(), {.padding = 1}));
        results.push_back(ops::conv2d_weight_gradient(y, x, weight.shape(), {.padding = 1}));
        synchronize(device);
      }
      cpu::set_num_threads(threads);
      for (std::size_t i = 0; i < 3; ++i) check_identical(results[i], results[i + 3]);
    });
  }

  TEST_CASE("an empty batch gives an empty result and a gradient of zeros") {
    const Tensor x = zeros({0, 2, 4, 4});
    const Tensor weight = ones({3, 2, 3, 3});
    const Tensor y = ops::conv2d(x, weight, {}, {});
    CHECK(y.shape() == Shape{0, 3, 2, 2});
    CHECK(ops::conv2d_input_gradient(y, weight, x.shape(), {}).shape() == x.shape());
    check_close(ops::conv2d_weight_gradient(y, x, weight.shape(), {}), std::vector<double>(54), 0);
  }

  TEST_CASE("wrong shapes, dtypes and options are named with what was got") {
    const Tensor x = zeros({2, 4, 5, 5});
    const Tensor weight = zeros({6, 4, 3, 3});
    const auto refuses = [](const Tensor& a, const Tensor& b, const Tensor& c,
                            const ConvOptions& options, const char* message) {
      CHECK_THROWS_WITH_AS((void)ops::conv2d(a, b, c, options), doctest::Contains(message),
                           ShapeError);
    };
    refuses(zeros({4, 5, 5}), weight, {}, {},
            "conv2d: x must be [batch, channels, height, width], got shape [4, 5, 5]; add a batch "
            "with unsqueeze(0)");
    refuses(x, zeros({6, 4, 3}), {}, {},
            "weight must be [out_channels, channels / groups, height, "
            "width], all at least 1, got shape [6, 4, 3]");
    refuses(x, zeros({6, 3, 3, 3}), {}, {},
            "x must have 3 channels to match weight [6, 3, 3, 3] "
            "in 1 groups, got x of shape [2, 4, 5, 5]");
    refuses(x, zeros({5, 2, 3, 3}), {}, {.groups = 2},
            "the number of output channels must be a multiple of groups, got weight [5, 2, 3, 3] "
            "and groups 2");
    refuses(x, weight, zeros({5}), {}, "bias must have shape [6], got [5]");
    refuses(x, zeros({6, 4, 3, 7}), {}, {},
            "the kernel's width of 7 reaches over 7, more than the 5 of x with its padding");
    refuses(x, weight, {}, {.dilation = {3, 1}},
            "the kernel's height of 3 reaches over 7, more than the 5 of x");
    const auto refuses_option = [&](const ConvOptions& options, const char* message) {
      CHECK_THROWS_WITH_AS((void)ops::conv2d(x, weight, {}, options), doctest::Contains(message),
                           ValueError);
    };
    refuses_option({.stride = {0, 1}}, "conv2d: stride must be at least 1, got 0 and 1");
    refuses_option({.padding = -1}, "conv2d: padding must be at least 0, got -1 and -1");
    refuses_option({.dilation = {1, 0}}, "conv2d: dilation must be at least 1, got 1 and 0");
    refuses_option({.groups = 0}, "conv2d: groups must be at least 1, got 0");
    CHECK_THROWS_WITH_AS((void)ops::conv2d(x, ops::cast(weight, DType::float64), {}, {}),
                         doctest::Contains("conv2d: dtypes differ"), DTypeError);
    CHECK_THROWS_WITH_AS(
        (void)ops::conv2d(ops::cast(x, DType::int64), ops::cast(weight, DType::int64), {}, {}),
        doctest::Contains("conv2d: needs a floating dtype"), DTypeError);
    CHECK_THROWS_WITH_AS((void)ops::conv2d_input_gradient(x, weight, x.shape(), {}),
                         doctest::Contains("the gradient must have shape [2, 6, 3, 3], got "
                                           "[2, 4, 5, 5]"),
                         ShapeError);
  }
}

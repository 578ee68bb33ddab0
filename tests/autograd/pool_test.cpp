#include "autograd/pool.h"

#include "autograd/grad_check.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::for_each_device;
using testing::random_tensor;
using testing::tolerance_for;

namespace {

struct MaxCase {
  Size2d kernel;
  MaxPoolOptions options;
  Shape x_shape, y_shape;
  std::vector<double> x, y, grad, x_grad, indices;
};
struct MeanCase {
  Size2d kernel;
  AvgPoolOptions options;
  Shape x_shape, y_shape;
  std::vector<double> x, y, grad, x_grad;
};
struct AdaptiveCase {
  Size2d output;
  Shape x_shape, y_shape;
  std::vector<double> x, y, grad, x_grad;
};

#include "tests/golden/pool.inc"

template <typename Case, typename Pool>
void agree(const Case& want, Device device, const Pool& pool) {
  CAPTURE(want.x_shape);
  CAPTURE(want.y_shape);
  const double tolerance = tolerance_for(DType::float64, device);
  const Tensor x = Tensor::from_vector(want.x_shape, want.x, device).set_requires_grad();
  const Tensor y = pool(x);
  CHECK(y.shape() == want.y_shape);
  check_close(y, want.y, tolerance);
  y.backward(Tensor::from_vector(want.y_shape, want.grad, device));
  check_close(x.grad(), want.x_grad, tolerance);
}

void check_gradients(const std::function<Tensor(const Tensor&)>& pool, const Shape& shape,
                     Device device) {
  const auto function = [&](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{pool(in[0])};
  };
  const Tensor x = random_tensor(shape, 1, DType::float64, device).set_requires_grad();
  const GradCheckResult first = grad_check(function, {x});
  CHECK_MESSAGE(first.ok, first.message);
  const GradCheckResult second = grad_grad_check(function, {x});
  CHECK_MESSAGE(second.ok, second.message);
}

}  // namespace

TEST_SUITE("autograd/pool") {
  TEST_CASE("max_pool2d, its indices and its gradient agree with PyTorch") {
    for_each_device([](Device device) {
      CHECK(kMax.size() == 4);
      for (const MaxCase& want : kMax) {
        agree(want, device, [&](const Tensor& x) {
          const MaxPool pooled = max_pool2d_with_indices(x, want.kernel, want.options);
          check_close(pooled.indices, want.indices, 0);
          return pooled.y;
        });
      }
    });
  }

  TEST_CASE("avg_pool2d and its gradient agree with PyTorch") {
    for_each_device([](Device device) {
      CHECK(kMean.size() == 4);
      for (const MeanCase& want : kMean) {
        agree(want, device,
              [&](const Tensor& x) { return avg_pool2d(x, want.kernel, want.options); });
      }
    });
  }

  TEST_CASE("adaptive_avg_pool2d and its gradient agree with PyTorch") {
    for_each_device([](Device device) {
      CHECK(kAdaptive.size() == 3);
      for (const AdaptiveCase& want : kAdaptive) {
        agree(want, device, [&](const Tensor& x) { return adaptive_avg_pool2d(x, want.output); });
      }
    });
  }

  TEST_CASE("gradients and their gradients agree with central differences") {
    for_each_device([](Device device) {
      const Shape shape{1, 2, 5, 4};
      check_gradients([](const Tensor& x) { return max_pool2d(x, 2); }, shape, device);
      check_gradients(
          [](const Tensor& x) {
            return max_pool2d(x, {3, 2}, {.stride = 1, .padding = 1, .dilation = {1, 2}});
          },
          shape, device);
      check_gradients(
          [](const Tensor& x) {
            return avg_pool2d(x, 3, {.stride = 2, .padding = 1, .ceil_mode = true});
          },
          shape, device);
      check_gradients(
          [](const Tensor& x) {
            return adaptive_avg_pool2d(x, {2, 3});
          },
          shape, device);
    });
  }
}

#include "nn/optim/clip.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "framework/tensor/factory.h"
#include "graphs/capture_scope.h"
#include "nn/optim/sgd.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::check_identical;
using testing::for_each_device;
using testing::tolerance_for;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor with_gradient(const std::vector<double>& gradient, Device device,
                     DType dtype = DType::float32) {
  const Shape shape{static_cast<std::int64_t>(gradient.size())};
  const Tensor parameter = zeros(shape, {.dtype = dtype, .device = device}).set_requires_grad();
  parameter.set_grad(Tensor::from_vector(shape, gradient).to(dtype).to(device));
  return parameter;
}

}  // namespace

TEST_SUITE("nn/optim/clip") {
  TEST_CASE("gradients are scaled as one vector by its norm, which is returned") {
    for_each_device([](Device device) {
      const double tolerance = tolerance_for(DType::float32, device);
      struct Row {
        double type, norm;
      };
      for (const auto& [type, norm] : {Row{2.0, 13.0},
                                       {1.0, 19.0},
                                       {kInfinity, 12.0},
                                       {3.0, std::cbrt(27.0 + 64.0 + 1728.0)}}) {
        CAPTURE(type);
        const Tensor p = with_gradient({3.0, -4.0}, device);
        const Tensor q = with_gradient({12.0}, device);
        const Tensor frozen = zeros({2}, {.device = device});
        const Tensor got = nn::clip_grad_norm_({p, frozen, q}, 0.5, {.norm_type = type});
        check_close(got, {norm}, tolerance);
        check_close(p.grad(), {1.5 / norm, -2.0 / norm}, tolerance);
        check_close(q.grad(), {6.0 / norm}, tolerance);
        CHECK_FALSE(frozen.grad().defined());
      }
    });
  }

  TEST_CASE("gradients within the limit keep their bits, and an infinite limit only measures") {
    for_each_device([](Device device) {
      const Tensor p = with_gradient({0.3, -0.4}, device);
      const Tensor before = p.grad().clone();
      (void)nn::clip_grad_norm_({p}, 0.6);
      check_identical(p.grad(), before);
      check_close(nn::clip_grad_norm_({p}, kInfinity), {0.5},
                  tolerance_for(DType::float32, device));
      check_identical(p.grad(), before);
    });
  }

  TEST_CASE("halves are measured in float32, float64 in float64") {
    for_each_device([](Device device) {
      const Tensor half = with_gradient({3000.0, 4000.0}, device, DType::float16);
      check_close(nn::clip_grad_norm_({half}, 5.0), {5000.0}, 1e-6);
      check_close(half.grad(), {3.0, 4.0}, tolerance_for(DType::float16, device));
      const Tensor wide = with_gradient({3e200, 4e200}, device, DType::float64);
      CHECK(nn::clip_grad_norm_({wide}, 1.0).dtype() == DType::float64);
    });
  }

  TEST_CASE("values are limited to both sides, NaN stays") {
    for_each_device([](Device device) {
      const double nan = std::numeric_limits<double>::quiet_NaN();
      const Tensor p = with_gradient({3.0, -0.25, -4.0, nan, -kInfinity}, device);
      nn::clip_grad_value_({p}, 0.5);
      check_close(p.grad(), {0.5, -0.25, -0.5, nan, -0.5}, 0.0);
    });
  }

  TEST_CASE("without gradients the norm is 0") {
    CHECK(nn::clip_grad_norm_({zeros({2})}, 1.0).item() == 0.0);
    CHECK(nn::clip_grad_norm_({}, 1.0).item() == 0.0);
  }

  TEST_CASE("bad limits and, on request, bad norms are refused before anything changes") {
    const Tensor p = with_gradient({3.0, kInfinity}, Device::cpu());
    CHECK_THROWS_WITH_AS(nn::clip_grad_norm_({p}, -1.0),
                         doctest::Contains("clip_grad_norm_: max_norm must be at least 0, got -1"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::clip_grad_norm_({p}, 1.0, {.norm_type = 0.0}),
                         doctest::Contains("norm_type must be positive or infinity, got 0"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::clip_grad_norm_({p}, 1.0, {.error_if_nonfinite = true}),
                         doctest::Contains("clip_grad_norm_: the norm of the gradients is inf"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::clip_grad_value_({p}, -1.0),
                         doctest::Contains("clip_grad_value_: clip_value must be at least 0"),
                         ValueError);
    check_close(p.grad(), {3.0, kInfinity}, 0.0);
  }

  TEST_CASE("B6: a captured step clips the gradients of each replay") {
    for_each_device([](Device device) {
      const Tensor p = with_gradient({3.0, 4.0}, device);
      nn::SGD sgd({p}, {.learning_rate = 1.0});
      Tensor norm;
      Graph graph(device);
      capture(graph, [&] {
        norm = nn::clip_grad_norm_({p}, 1.0);
        sgd.step();
      });
      graph.replay();
      check_close(p.grad(), {0.6, 0.8}, 1e-5);
      check_close(p.detach(), {-0.6, -0.8}, 1e-5);
      check_close(norm, {5.0}, 1e-6);
      p.grad().copy_(Tensor::from_vector({2}, std::vector<float>{0.3F, 0.4F}).to(device));
      const Tensor before = p.grad().clone();
      graph.replay();
      check_identical(p.grad(), before);
      check_close(norm, {0.5}, 1e-6);
    });
  }

  TEST_CASE("B6: clipping that would read the norm is refused before anything is recorded") {
    for_each_device([](Device device) {
      const Tensor p = with_gradient({3.0, 4.0}, device);
      Graph graph(device);
      CHECK_THROWS_WITH_AS(
          capture(graph,
                  [&] { (void)nn::clip_grad_norm_({p}, 1.0, {.error_if_nonfinite = true}); }),
          doctest::Contains("clip_grad_norm_ with error_if_nonfinite: not possible while"),
          CaptureError);
      check_close(p.grad(), {3.0, 4.0}, 0.0);
    });
  }
}

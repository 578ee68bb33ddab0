#include "autograd/norm.h"

#include "autograd/arithmetic.h"
#include "autograd/grad_check.h"
#include "autograd/math.h"
#include "framework/core/counters.h"
#include "framework/tensor/factory.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::for_each_device;
using testing::random_tensor;
using testing::tolerance_for;

namespace {

#include "tests/golden/norm.inc"

Tensor leaf(const Shape& shape, std::uint64_t seed, Device device) {
  return random_tensor(shape, seed, DType::float64, device).set_requires_grad();
}
Tensor values(const Shape& shape, const std::vector<double>& list, Device device) {
  return Tensor::from_vector(shape, list, device);
}

}  // namespace

TEST_SUITE("autograd/norm") {
  TEST_CASE("training and evaluation agree with PyTorch, gradients and running averages too") {
    for_each_device([](Device device) {
      const Shape shape{3, 2, 2, 2};
      const double tolerance = tolerance_for(DType::float64, device);
      const Tensor x = values(shape, kInput, device).set_requires_grad();
      const Tensor weight = values({2}, {1.5, -0.5}, device).set_requires_grad();
      const Tensor bias = values({2}, {0.25, 2.0}, device).set_requires_grad();
      const Tensor mean = values({2}, {0, 0}, device);
      const Tensor var = values({2}, {1, 1}, device);
      BatchNormOptions options{.training = true, .momentum = 0.25, .eps = 1e-3};
      (void)batch_norm(x, mean, var, weight, bias, options);
      Tensor y = batch_norm(x * 2.0, mean, var, weight, bias, options);
      check_close(y, kTrainY, tolerance);
      check_close(mean, kAverageMean, tolerance);
      check_close(var, kAverageVar, tolerance);
      y.backward(values(shape, kFirstGrad, device));
      check_close(x.grad(), kTrainXGrad, tolerance);
      check_close(weight.grad(), kTrainWeightGrad, tolerance);
      check_close(bias.grad(), kTrainBiasGrad, tolerance);

      for (const Tensor& t : {x, weight, bias}) t.set_grad({});
      options.training = false;
      y = batch_norm(x, mean, var, weight, bias, options);
      check_close(y, kEvalY, tolerance);
      check_close(mean, kAverageMean, tolerance);
      y.backward(values(shape, kSecondGrad, device));
      check_close(x.grad(), kEvalXGrad, tolerance);
      check_close(weight.grad(), kEvalWeightGrad, tolerance);
      check_close(bias.grad(), kEvalBiasGrad, tolerance);
    });
  }

  TEST_CASE("without momentum the running averages are those of PyTorch over all batches") {
    for_each_device([](Device device) {
      const Tensor x = values({3, 2, 2, 2}, kInput, device);
      const Tensor mean = values({2}, {0, 0}, device);
      const Tensor var = values({2}, {1, 1}, device);
      const Tensor batches = zeros({}, {.dtype = DType::int64, .device = device});
      const BatchNormOptions options{
          .training = true, .momentum = std::nullopt, .eps = 1e-3, .batches = batches};
      (void)batch_norm(x, mean, var, {}, {}, options);
      (void)batch_norm(x * 2.0, mean, var, {}, {}, options);
      check_close(mean, kCumulativeMean, tolerance_for(DType::float64, device));
      check_close(var, kCumulativeVar, tolerance_for(DType::float64, device));
      CHECK(batches.item() == 2);
    });
  }

  TEST_CASE("gradients and their gradients agree with central differences") {
    for_each_device([](Device device) {
      for (const Shape& shape : {Shape{4, 3}, Shape{2, 3, 3}, Shape{2, 2, 2, 2}}) {
        const std::int64_t channels = shape[1];
        for (const bool training : {true, false}) {
          const auto function = [&](const std::vector<Tensor>& in) {
            const Tensor mean = random_tensor({channels}, 5, DType::float64, device);
            const Tensor var = random_tensor({channels}, 6, DType::float64, device) + 2.0;
            return std::vector<Tensor>{
                batch_norm(in[0], mean, var, in[1], in[2], {.training = training, .eps = 1e-2})};
          };
          const std::vector<Tensor> inputs{leaf(shape, 1, device), leaf({channels}, 2, device),
                                           leaf({channels}, 3, device)};
          const GradCheckResult first = grad_check(function, inputs);
          CHECK_MESSAGE(first.ok, first.message);
          const GradCheckResult second = grad_grad_check(function, inputs);
          CHECK_MESSAGE(second.ok, second.message);
        }
      }
    });
  }

  TEST_CASE("the fused backward equals the one that can be differentiated again") {
    for_each_device([](Device device) {
      for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
        const Tensor start = random_tensor({4, 3, 5}, 1, dtype, device);
        const Tensor weight = random_tensor({3}, 2, DType::float32, device).set_requires_grad();
        const Tensor bias = random_tensor({3}, 3, dtype, device).set_requires_grad();
        const Tensor g = random_tensor({4, 3, 5}, 4, dtype, device);
        std::vector<Tensor> grads;
        for (const bool again : {false, true}) {
          const Tensor x = start.clone().set_requires_grad();
          for (const Tensor& t : {weight, bias}) t.set_grad({});
          batch_norm(x, {}, {}, weight, bias).backward(g, {.create_graph = again});
          for (const Tensor& t : {x, weight, bias}) {
            CHECK(t.grad().dtype() == t.dtype());
            grads.push_back(t.grad().detach().to(DType::float64));
            t.set_grad({});  // one with a history refers to its leaf
          }
        }
        const double tolerance = 2 * tolerance_for(dtype, device);
        for (std::size_t i = 0; i < 3; ++i) check_close(grads[i], grads[i + 3], tolerance);
      }
    });
  }

  TEST_CASE("without affine parameters and gradients of x, nothing is computed for them") {
    const Tensor x = random_tensor({4, 3}, 1, DType::float64, Device::cpu());
    const Tensor bias = leaf({3}, 2, Device::cpu());
    const Tensor y = batch_norm(x, {}, {}, {}, bias);
    y.backward(ones({4, 3}, {.dtype = DType::float64}));
    check_close(bias.grad(), {4, 4, 4}, 0);
    CHECK_FALSE(x.grad().defined());
  }

  TEST_CASE("training between forward and backward of an evaluation does not disturb it") {
    const Tensor x = leaf({4, 3}, 1, Device::cpu());
    const Tensor mean = zeros({3}, {.dtype = DType::float64});
    const Tensor var = ones({3}, {.dtype = DType::float64});
    const Tensor y = batch_norm(x, mean, var, {}, {}, {.eps = 3.0});
    (void)batch_norm(x.detach(), mean, var, {}, {}, {.training = true});
    y.backward(ones({4, 3}, {.dtype = DType::float64}));
    check_close(x.grad(), std::vector<double>(12, 0.5), 1e-12);
  }

  TEST_CASE("an error leaves the running averages and the count as they were") {
    const Tensor x = zeros({4, 3});
    const Tensor mean = full({3}, 7.0);
    const Tensor var = full({3}, 8.0);
    const Tensor batches = zeros({}, {.dtype = DType::int64});
    const BatchNormOptions options{.training = true, .batches = batches};
    CHECK_THROWS_AS((void)batch_norm(x, mean, var, zeros({2}), {}, options), ShapeError);
    CHECK_THROWS_AS((void)batch_norm(zeros({1, 3}), mean, var, {}, {}, options), ShapeError);
    CHECK_THROWS_WITH_AS((void)batch_norm(x, mean, {}, {}, {}, options),
                         doctest::Contains("needs both running_mean and running_var or neither, "
                                           "got running_mean alone"),
                         ValueError);
    check_close(mean, {7, 7, 7}, 0);
    check_close(var, {8, 8, 8}, 0);
    CHECK(batches.item() == 0);
  }
}

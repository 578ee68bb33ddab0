#include "autograd/autocast.h"

#include <functional>

#include "autograd/arithmetic.h"
#include "autograd/engine.h"
#include "autograd/function.h"
#include "autograd/grad_mode.h"
#include "autograd/layout.h"
#include "autograd/linalg.h"
#include "autograd/loss.h"
#include "autograd/math.h"
#include "autograd/reduce.h"
#include "framework/core/counters.h"
#include "nn/activations.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;
using testing::check_identical;
using testing::for_each_device;
using testing::random_tensor;

Tensor weight_on(Device device, std::uint64_t seed = 1) {
  return random_tensor({4, 3}, seed, DType::float32, device).set_requires_grad();
}

Tensor input_on(Device device, std::uint64_t seed = 2) {
  return random_tensor({5, 3}, seed, DType::float32, device);
}

AutocastOptions brain() { return {.dtype = DType::bfloat16}; }

std::int64_t dispatches_of(const std::function<void()>& body) {
  const std::int64_t before = counters().dispatches;
  body();
  return counters().dispatches - before;
}

/// Remembers under which modes its parts run.
struct Watching : Function<Watching> {
  static constexpr const char* name = "watching";
  static inline bool forward_on = false;
  static inline bool backward_on = false;
  static std::vector<Tensor> forward(FunctionContext& context, const std::vector<Tensor>& inputs) {
    forward_on = is_autocast_enabled(inputs[0].device().type);
    context.save_for_backward(inputs);
    return {matmul(inputs[0], inputs[1])};
  }
  static std::vector<Tensor> backward(FunctionContext& context, const std::vector<Tensor>& grads) {
    const std::vector<Tensor> saved = context.saved();
    backward_on = is_autocast_enabled(grads[0].device().type);
    return {matmul(grads[0], saved[1].t()), matmul(saved[0].t(), grads[0])};
  }
};

}  // namespace

TEST_SUITE("autograd/autocast") {
  TEST_CASE("scopes nest, and each restores what it found, errors included") {
    constexpr DeviceType kCpu = DeviceType::cpu;
    CHECK_FALSE(is_autocast_enabled(kCpu));
    CHECK(autocast_dtype(kCpu) == DType::bfloat16);
    CHECK(autocast_dtype(DeviceType::gpu) == DType::float16);
    {
      const Autocast outer(kCpu, {.dtype = DType::float16, .cache_enabled = false});
      CHECK(is_autocast_enabled(kCpu));
      CHECK_FALSE(is_autocast_enabled(DeviceType::gpu));
      CHECK_FALSE(is_autocast_cache_enabled());
      {
        const Autocast inner(kCpu, {.enabled = false});
        CHECK_FALSE(is_autocast_enabled(kCpu));
        CHECK(is_autocast_cache_enabled());
      }
      CHECK(is_autocast_enabled(kCpu));
      CHECK(autocast_dtype(kCpu) == DType::float16);
      const auto fails = [] {
        const Autocast inner(kCpu, brain());
        (void)matmul(input_on(Device::cpu()), input_on(Device::cpu()));
      };
      CHECK_THROWS_AS(fails(), ShapeError);
      CHECK(autocast_dtype(kCpu) == DType::float16);
      CHECK_THROWS_WITH_AS(Autocast(kCpu, {.dtype = DType::float32}),
                           doctest::Contains("must be float16 or bfloat16, got float32"),
                           DTypeError);
      CHECK(autocast_dtype(kCpu) == DType::float16);
    }
    CHECK_FALSE(is_autocast_enabled(kCpu));
    CHECK(is_autocast_cache_enabled());
    CHECK(autocast_dtype(kCpu) == DType::bfloat16);
  }

  TEST_CASE("each operation computes in the dtype of its list") {
    for_each_device([](Device device) {
      const Tensor x = random_tensor({3, 3}, 1, DType::float32, device);
      const Tensor half = x.to(DType::bfloat16);
      const Tensor labels = Tensor::from_vector<std::int64_t>({3}, {0, 1, 2}, device);
      using Operation = std::function<Tensor(const Tensor&)>;
      struct Row {
        const char* name;
        Operation run;
        DType of_float32;
        DType of_bfloat16;
      };
      constexpr DType kHalf = DType::bfloat16;
      constexpr DType kFull = DType::float32;
      const Row rows[] = {
          {"matmul", [](const Tensor& t) { return matmul(t, t); }, kHalf, kHalf},
          {"bmm", [](const Tensor& t) { return bmm(t.unsqueeze(0), t.unsqueeze(0)); }, kHalf,
           kHalf},
          {"linear", [](const Tensor& t) { return linear(t, t, t.select(0, 0)); }, kHalf, kHalf},
          {"exp", [](const Tensor& t) { return exp(t); }, kFull, kFull},
          {"expm1", [](const Tensor& t) { return expm1(t); }, kFull, kFull},
          {"log", [](const Tensor& t) { return log(t); }, kFull, kFull},
          {"log1p", [](const Tensor& t) { return log1p(t); }, kFull, kFull},
          {"reciprocal", [](const Tensor& t) { return reciprocal(t); }, kFull, kFull},
          {"rsqrt", [](const Tensor& t) { return rsqrt(t); }, kFull, kFull},
          {"pow", [](const Tensor& t) { return pow(t, 2.0); }, kFull, kFull},
          {"sum", [](const Tensor& t) { return sum(t); }, kFull, kFull},
          {"mean", [](const Tensor& t) { return mean(t); }, kFull, kFull},
          {"softmax", [](const Tensor& t) { return softmax(t, 1); }, kFull, kFull},
          {"log_softmax", [](const Tensor& t) { return log_softmax(t, 1); }, kFull, kFull},
          {"cross_entropy", [&](const Tensor& t) { return cross_entropy(t, labels); }, kFull,
           kFull},
          {"nll_loss", [&](const Tensor& t) { return nll_loss(t, labels); }, kFull, kFull},
          {"mse_loss", [](const Tensor& t) { return mse_loss(t, t); }, kFull, kFull},
          {"bce", [](const Tensor& t) { return binary_cross_entropy_with_logits(t, t); }, kFull,
           kFull},
          {"add", [](const Tensor& t) { return t + 1.0; }, kFull, kHalf},
          {"mixed add", [&](const Tensor& t) { return t + x; }, kFull, kFull},
          {"mixed cat",
           [&](const Tensor& t) {
             return cat({t, x});
           },
           kFull, kFull},
          {"relu", [](const Tensor& t) { return relu(t); }, kFull, kHalf},
          {"tanh", [](const Tensor& t) { return tanh(t); }, kFull, kHalf},
          {"sqrt", [](const Tensor& t) { return sqrt(t); }, kFull, kHalf},
          {"max", [](const Tensor& t) { return max(t); }, kFull, kHalf},
      };
      const Autocast autocast(device.type, brain());
      for (const Row& row : rows) {
        CAPTURE(row.name);
        CHECK(row.run(x).dtype() == row.of_float32);
        CHECK(row.run(half).dtype() == row.of_bfloat16);
      }
      const Tensor wide = x.to(DType::float64);
      CHECK(matmul(wide, wide).dtype() == DType::float64);
      CHECK(sum(Tensor::from_vector<std::int32_t>({1}, {1}, device)).dtype() == DType::int64);
    });
  }

  TEST_CASE("a layer and its gradients equal those with conversions by hand") {
    for_each_device([](Device device) {
      const Tensor x = input_on(device).set_requires_grad();
      const Tensor weight = weight_on(device);
      const Tensor bias = random_tensor({4}, 3, DType::float32, device).set_requires_grad();
      const Tensor y = [&] {
        const Autocast autocast(device.type, brain());
        return linear(x, weight, bias);
      }();
      CHECK(y.dtype() == DType::bfloat16);
      const auto by_hand =
          linear(x.to(DType::bfloat16), weight.to(DType::bfloat16), bias.to(DType::bfloat16));
      check_identical(y.detach(), by_hand.detach());
      const std::vector<Tensor> want =
          grad({square(by_hand.to(DType::float32)).sum()}, {x, weight, bias});
      square(y.to(DType::float32)).sum().backward();
      CHECK(weight.grad().dtype() == DType::float32);
      check_identical(x.grad(), want[0]);
      check_identical(weight.grad(), want[1]);
      check_identical(bias.grad(), want[2]);
    });
  }

  TEST_CASE("backward is the same within the scope and after it") {
    for_each_device([](Device device) {
      const Tensor weight = weight_on(device);
      const auto loss = [&] { return log_softmax(matmul(input_on(device), weight.t()), 1).sum(); };
      {
        const Autocast autocast(device.type, brain());
        loss().backward();
      }
      const Tensor within = weight.grad();
      weight.set_grad({});
      const Tensor kept = [&] {
        const Autocast autocast(device.type, brain());
        return loss();
      }();
      kept.backward();
      check_identical(weight.grad(), within);
    });
  }

  TEST_CASE("gradients can be differentiated again") {
    const Tensor weight = weight_on(Device::cpu());
    const Autocast autocast(DeviceType::cpu);
    const Tensor y = square(matmul(input_on(Device::cpu()), weight.t())).sum();
    const Tensor first = grad({y}, {weight}, {}, {.create_graph = true})[0];
    const Tensor second = grad({first.sum()}, {weight})[0];
    CHECK(first.dtype() == DType::float32);
    CHECK(second.dtype() == DType::float32);
  }

  TEST_CASE("a parameter is converted once, until it is written") {
    for_each_device([](Device device) {
      const Tensor weight = weight_on(device);
      const Tensor x = input_on(device).to(DType::bfloat16);
      const Autocast autocast(device.type, brain());
      const auto apply = [&] { (void)linear(x, weight, Tensor()); };
      CHECK(dispatches_of(apply) == 2);
      CHECK(dispatches_of(apply) == 1);
      {
        const NoGradGuard no_grad;
        weight.add_(1.0);
      }
      CHECK(dispatches_of(apply) == 2);
      check_identical(linear(x, weight, Tensor()).detach(),
                      linear(x, weight.detach().to(DType::bfloat16), Tensor()));
      clear_autocast_cache();
      CHECK(dispatches_of(apply) == 2);
      weight.set_data(weight_on(device, 9).detach());
      CHECK(dispatches_of(apply) == 2);
      const Autocast without(device.type, {.cache_enabled = false});
      CHECK(dispatches_of(apply) == 2);
      CHECK(dispatches_of(apply) == 2);
    });
  }

  TEST_CASE("the cache ends with the outermost scope") {
    const Tensor weight = weight_on(Device::cpu());
    const Ref<TensorImpl>& impl = weight.impl();
    const auto holders = impl->use_count();
    {
      const Autocast outer(DeviceType::cpu);
      {
        const Autocast inner(DeviceType::cpu);
        (void)linear(input_on(Device::cpu()), weight, Tensor());
      }
      CHECK(impl->use_count() > holders);
    }
    CHECK(impl->use_count() == holders);
  }

  TEST_CASE("a conversion made without gradients does not cut them off later") {
    const Tensor weight = weight_on(Device::cpu());
    const Autocast autocast(DeviceType::cpu);
    {
      const NoGradGuard no_grad;
      (void)linear(input_on(Device::cpu()), weight, Tensor());
    }
    linear(input_on(Device::cpu()), weight, Tensor()).sum().backward();
    CHECK(weight.grad().defined());
  }

  TEST_CASE("graphs that share a conversion each run backward") {
    const Tensor weight = weight_on(Device::cpu());
    const Autocast autocast(DeviceType::cpu);
    const Tensor a = linear(input_on(Device::cpu()), weight, Tensor()).sum();
    const Tensor b = linear(input_on(Device::cpu()), weight, Tensor()).sum();
    a.backward();
    const Tensor once = weight.grad().clone();
    b.backward();
    linear(input_on(Device::cpu()), weight, Tensor()).sum().backward();
    check_close(weight.grad(), once * 3.0, 1e-6);
  }

  TEST_CASE("a conversion made on one stream is not used on another") {
    for_each_device([](Device device) {
      const Tensor weight = weight_on(device);
      const Tensor x = input_on(device).to(DType::bfloat16);
      const Autocast autocast(device.type, brain());
      const Tensor want = linear(x, weight, Tensor());
      const Stream side = Stream::create(device);
      side.wait_stream(current_stream(device));
      Tensor got;
      {
        const StreamGuard guard(side);
        CHECK(dispatches_of([&] { got = linear(x, weight, Tensor()); }) == 2);
      }
      current_stream(device).wait_stream(side);
      check_identical(got.detach(), want.detach());
    });
  }

  TEST_CASE("the backward of a custom function runs under the modes of its forward") {
    for_each_device([](Device device) {
      const Tensor a = input_on(device).set_requires_grad();
      const Tensor b = random_tensor({3, 2}, 5, DType::float32, device).set_requires_grad();
      const Tensor y = [&] {
        const Autocast autocast(device.type, brain());
        return Watching::apply({a, b})[0];
      }();
      CHECK(Watching::forward_on);
      CHECK(y.dtype() == DType::bfloat16);
      y.backward(y.detach());
      CHECK(Watching::backward_on);
      CHECK(a.grad().dtype() == DType::float32);
      CHECK_FALSE(is_autocast_enabled(device.type));

      const Tensor z = Watching::apply({a, b})[0];
      const Autocast autocast(device.type, brain());
      z.backward(z.detach());
      CHECK_FALSE(Watching::backward_on);
      CHECK(is_autocast_enabled(device.type));
    });
  }
}

}  // namespace capstan

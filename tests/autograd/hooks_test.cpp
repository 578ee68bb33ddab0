#include <doctest/doctest.h>

#include <utility>

#include "autograd/arithmetic.h"
#include "autograd/engine.h"
#include "framework/tensor/factory.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;
using testing::for_each_device;
using testing::tolerance_for;

Tensor values(const std::vector<float>& elements, Device device = Device::cpu()) {
  return Tensor::from_vector({static_cast<std::int64_t>(elements.size())}, elements, device);
}

Tensor leaf(const std::vector<float>& elements, Device device = Device::cpu()) {
  return values(elements, device).set_requires_grad();
}

TEST_SUITE("autograd/hooks") {
  TEST_CASE("a hook sees the whole gradient once") {
    for_each_device([](Device device) {
      const double tolerance = tolerance_for(DType::float32, device);
      const Tensor x = leaf({1, 2}, device);
      const Tensor y = x * 3.0;
      int calls = 0;
      (void)y.register_hook([&](const Tensor& grad) {
        ++calls;
        check_close(grad, {7, 13}, tolerance);  // 2y + 1
        return Tensor();
      });
      (y * y + y).sum().backward();
      CHECK(calls == 1);
      check_close(x.grad(), {21, 39}, tolerance);
    });
  }

  TEST_CASE("results of hooks replace the gradient, in the order of registration") {
    const Tensor x = leaf({1, 2});
    const Tensor y = x * 3.0;
    (void)y.register_hook([](const Tensor& grad) { return grad + 1.0; });
    (void)y.register_hook([](const Tensor& grad) { return grad * 10.0; });
    y.sum().backward();
    check_close(x.grad(), {60, 60}, 0.0);
  }

  TEST_CASE("hooks of a leaf come before accumulation") {
    const Tensor x = leaf({1, 2});
    (void)x.register_hook([](const Tensor& grad) { return grad * 2.0; });
    (x * 3.0 + x).sum().backward();
    check_close(x.grad(), {8, 8}, 0.0);
    (x * 3.0).sum().backward();
    check_close(x.grad(), {14, 14}, 0.0);
  }

  TEST_CASE("a removed hook is not called, and one may remove itself") {
    const Tensor x = leaf({1, 2});
    int calls = 0;
    int id = 0;
    id = x.register_hook([&](const Tensor&) {
      ++calls;
      x.remove_hook(id);
      return Tensor();
    });
    const int other = x.register_hook([](const Tensor& grad) { return grad * 100.0; });
    CHECK(other != id);
    x.remove_hook(other);
    x.remove_hook(other);
    x.sum().backward();
    x.sum().backward();
    CHECK(calls == 1);
    check_close(x.grad(), {2, 2}, 0.0);
  }

  TEST_CASE("a hook of another shape is an error that names both") {
    const Tensor x = leaf({1, 2});
    const Tensor y = x * 3.0;
    (void)y.register_hook([](const Tensor&) { return ones({3}); });
    CHECK_THROWS_WITH_AS(
        y.sum().backward(),
        doctest::Contains("hook on mul returned float32[3] on cpu for a gradient that is "
                          "float32[2] on cpu"),
        GradError);
    CHECK_FALSE(x.grad().defined());
  }

  TEST_CASE("errors inside a hook name the line of the hook") {
    const Tensor x = leaf({1, 2});
    (void)x.register_hook([](const Tensor& grad) { return grad + ones({3}); });
    const std::string line = "hooks_test.cpp:" + std::to_string(__LINE__ - 1);
    const Tensor y = x.sum();
    CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains(line.c_str()), ShapeError);
  }

  TEST_CASE("a hook may run backward, but not use up what is needed after it") {
    const Tensor x = leaf({1, 2});
    const auto result_with_hook = [&](bool retain_graph) {
      Tensor y = x * x;
      (void)y.register_hook(
          [&x, retain_graph, inside = false, y = y.impl().get()](const Tensor& grad_of_y) mutable {
            if (std::exchange(inside, true)) return Tensor();
            const Tensor self{Ref<TensorImpl>(y)};  // holding y itself would be a cycle
            return grad({self}, {x}, {grad_of_y}, {.retain_graph = retain_graph})[0];
          });
      return y;
    };
    const Tensor y = result_with_hook(true);
    y.sum().backward();
    check_close(x.grad(), {4, 16}, 0.0);  // (2x) 2x
    const Tensor used_up = result_with_hook(false);
    CHECK_THROWS_WITH_AS(used_up.sum().backward(), doctest::Contains("already used"), GradError);
    check_close(x.grad(), {4, 16}, 0.0);
  }

  TEST_CASE("hooks work under create_graph") {
    const Tensor x = leaf({1, 2});
    const Tensor y = x * x;
    (void)y.register_hook([&](const Tensor& grad) { return grad * x; });
    const Tensor first = grad({y.sum()}, {x}, {}, {.create_graph = true})[0];  // 2x^2
    check_close(first, {2, 8}, 0.0);
    check_close(grad({first.sum()}, {x})[0], {4, 8}, 0.0);
  }

  TEST_CASE("retain_grad keeps the gradient of a result and adds up") {
    for_each_device([](Device device) {
      const double tolerance = tolerance_for(DType::float32, device);
      const Tensor x = leaf({1, 2}, device);
      const Tensor y = x * 3.0;
      y.retain_grad();
      y.retain_grad();
      CHECK_FALSE(y.grad().defined());
      const Tensor z = (y * y).sum();
      z.backward({}, {.retain_graph = true});
      check_close(y.grad(), {6, 12}, tolerance);
      z.backward();
      check_close(y.grad(), {12, 24}, tolerance);
      CHECK_FALSE(z.grad().defined());
    });
  }

  TEST_CASE("retain_grad keeps what hooks made of the gradient") {
    const Tensor x = leaf({1, 2});
    const Tensor y = x * 3.0;
    y.retain_grad();
    (void)y.register_hook([](const Tensor& grad) { return grad * 10.0; });
    y.sum().backward();
    check_close(y.grad(), {10, 10}, 0.0);
    (void)y.grad().fill_(0.0);
    check_close(x.grad(), {30, 30}, 0.0);
  }

  TEST_CASE("a retained gradient is about the tensor after a write in place") {
    const Tensor x = leaf({1, 2});
    const Tensor y = x * 3.0;
    y.retain_grad();
    (void)y.mul_(5.0);
    y.sum().backward();
    check_close(y.grad(), {1, 1}, 0.0);
    check_close(x.grad(), {15, 15}, 0.0);
  }

  TEST_CASE("a failed backward and grad leave retained gradients alone") {
    const Tensor x = leaf({1, 2});
    (void)x.register_hook([](const Tensor&) -> Tensor { throw ValueError("hook: no"); });
    const Tensor y = x * 3.0;
    y.retain_grad();
    const Tensor z = y.sum();
    CHECK_THROWS_AS(z.backward({}, {.retain_graph = true}), ValueError);
    CHECK_FALSE(y.grad().defined());
    (void)grad({z}, {y});
    CHECK_FALSE(y.grad().defined());
  }

  TEST_CASE("tensors without a gradient take no hooks") {
    const Tensor x = values({1, 2});
    const auto hook = [](const Tensor& grad) { return grad; };
    CHECK_THROWS_WITH_AS((void)x.register_hook(hook),
                         doctest::Contains("register_hook: float32[2] on cpu requires no gradient"),
                         GradError);
    CHECK_THROWS_WITH_AS(x.retain_grad(), doctest::Contains("retain_grad"), GradError);
    CHECK_THROWS_WITH_AS((void)leaf({1}).register_hook(nullptr), doctest::Contains("hook is empty"),
                         ValueError);
    x.remove_hook(1);
  }
}

}  // namespace
}  // namespace capstan

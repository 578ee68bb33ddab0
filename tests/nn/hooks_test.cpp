#include <doctest/doctest.h>

#include "autograd/arithmetic.h"
#include "autograd/grad_mode.h"
#include "autograd/reduce.h"
#include "framework/tensor/factory.h"
#include "nn/activations.h"
#include "nn/linear.h"
#include "nn/module.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;

namespace {

struct Twice : nn::Module {
  Tensor forward(const Tensor& x) override { return x * 2.0; }
};

struct Same : nn::Module {
  Tensor forward(const Tensor& x) override { return x; }
};

Tensor leaf(float value) {
  const Tensor x = Tensor::from_vector({1}, std::vector<float>{value});
  return x.set_requires_grad();
}

}  // namespace

TEST_SUITE("nn/hooks") {
  TEST_CASE("forward hooks run around forward in the order of registration") {
    Twice twice;
    std::string order;
    twice.register_forward_hook([&](nn::Module&, const Tensor& in, const Tensor& out) {
      order += "c";
      check_close(in, {3.0}, 0.0);
      check_close(out, {6.0}, 0.0);
      return Tensor();
    });
    twice.register_forward_pre_hook([&](nn::Module& module, const Tensor&) {
      CHECK(&module == &twice);
      order += "a";
      return Tensor();
    });
    twice.register_forward_pre_hook([&](nn::Module&, const Tensor&) {
      order += "b";
      return Tensor();
    });
    check_close(twice(Tensor::from_vector({1}, std::vector<float>{3.0f})), {6.0}, 0.0);
    CHECK(order == "abc");
  }

  TEST_CASE("a defined result replaces input, output and gradient") {
    Twice twice;
    twice.register_forward_pre_hook([](nn::Module&, const Tensor& x) { return x + 1.0; });
    twice.register_forward_hook(
        [](nn::Module&, const Tensor&, const Tensor& y) { return y * 10.0; });
    std::vector<double> seen;
    twice.register_backward_hook([&](nn::Module&, const Tensor& grad) {
      seen = grad.to_vector<double>();
      return grad * 3.0;
    });
    const Tensor x = leaf(1.0f);
    const Tensor y = twice(x);
    check_close(y, {40.0}, 0.0);
    (y * 5.0).backward();
    CHECK(seen == std::vector<double>{5.0});
    // 5, times 3 by the hook, times 10 and 2 on the way to x.
    check_close(x.grad(), {300.0}, 0.0);
  }

  TEST_CASE("backward hooks chain, each seeing what the one before returned") {
    Twice twice;
    twice.register_backward_hook([](nn::Module&, const Tensor& grad) { return grad + 1.0; });
    twice.register_backward_hook([](nn::Module&, const Tensor&) { return Tensor(); });
    twice.register_backward_hook([](nn::Module&, const Tensor& grad) { return grad * 2.0; });
    const Tensor x = leaf(1.0f);
    twice(x).backward();
    check_close(x.grad(), {8.0}, 0.0);
  }

  TEST_CASE("a backward hook of a module that returns its input sees that call only") {
    Same same;
    int calls = 0;
    same.register_backward_hook([&](nn::Module&, const Tensor& grad) {
      ++calls;
      return grad * 10.0;
    });
    const Tensor x = leaf(1.0f);
    (same(x) + x).backward();  // 10 through the module, 1 beside it
    check_close(x.grad(), {11.0}, 0.0);
    CHECK(calls == 1);

    x.set_grad(Tensor());
    (x * 1.0).backward();  // the hook did not stay with x
    check_close(x.grad(), {1.0}, 0.0);
    CHECK(calls == 1);
  }

  TEST_CASE("without recording, backward hooks do nothing") {
    Twice twice;
    twice.register_backward_hook([](nn::Module&, const Tensor& grad) { return grad; });
    const NoGradGuard no_grad;
    check_close(twice(leaf(2.0f)), {4.0}, 0.0);
  }

  TEST_CASE("a removed hook no longer runs, also one that removes itself") {
    Twice twice;
    int calls = 0;
    const int first = twice.register_forward_hook([&](nn::Module&, const Tensor&, const Tensor&) {
      ++calls;
      return Tensor();
    });
    int second = 0;
    second = twice.register_forward_pre_hook([&](nn::Module& module, const Tensor&) {
      ++calls;
      module.remove_hook(second);
      return Tensor();
    });
    const int third = twice.register_forward_pre_hook([&](nn::Module&, const Tensor&) {
      ++calls;
      return Tensor();
    });
    CHECK(first != second);
    CHECK(twice.has_hooks());
    const Tensor x = ones({1});
    (void)twice(x);
    CHECK(calls == 3);
    (void)twice(x);
    CHECK(calls == 5);
    twice.remove_hook(first);
    twice.remove_hook(third);
    CHECK_FALSE(twice.has_hooks());
    (void)twice(x);
    CHECK(calls == 5);
  }

  TEST_CASE("an error in a hook comes out with the module's path") {
    Twice twice;
    twice.set_name("twice");
    twice.register_forward_hook(
        [](nn::Module&, const Tensor& x, const Tensor&) { return x.reshape({7}); });
    CHECK_THROWS_WITH_AS((void)twice(ones({2})), doctest::Contains("in twice: reshape"),
                         ShapeError);
  }
}

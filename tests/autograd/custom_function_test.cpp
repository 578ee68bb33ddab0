#include <doctest/doctest.h>

#include "autograd/arithmetic.h"
#include "autograd/engine.h"
#include "autograd/function.h"
#include "autograd/grad_check.h"
#include "autograd/grad_mode.h"
#include "framework/tensor/factory.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;
using testing::for_each_device;
using testing::tolerance_for;

using Tensors = std::vector<Tensor>;

Tensor leaf(const std::vector<float>& elements, Device device = Device::cpu()) {
  return Tensor::from_vector({static_cast<std::int64_t>(elements.size())}, elements, device)
      .set_requires_grad();
}

struct Cube : Function<Cube> {
  static constexpr const char* name = "cube";
  static Tensors forward(FunctionContext& context, const Tensors& inputs) {
    CHECK_FALSE(grad_enabled());
    context.save_for_backward(inputs);
    return {inputs[0] * inputs[0] * inputs[0]};
  }
  static Tensors backward(FunctionContext& context, const Tensors& grads) {
    const Tensor x = context.saved()[0];
    return {grads[0] * 3.0 * x * x};
  }
};

struct OnceOnly : Function<OnceOnly> {
  static constexpr const char* name = "once_only";
  static Tensors forward(FunctionContext& context, const Tensors& inputs) {
    context.mark_once_differentiable();
    return {inputs[0] * 2.0};
  }
  static Tensors backward(FunctionContext&, const Tensors& grads) { return {grads[0] * 2.0}; }
};

/// Sum and product; also tells which input gradients were wanted, and counts with `data`.
struct SumAndProduct : Function<SumAndProduct> {
  static constexpr const char* name = "sum_and_product";
  static inline std::vector<bool> wanted;
  static Tensors forward(FunctionContext& context, const Tensors& inputs) {
    context.save_for_backward(inputs);
    context.data = 42;
    return {inputs[0] + inputs[1], inputs[0] * inputs[1]};
  }
  static Tensors backward(FunctionContext& context, const Tensors& grads) {
    CHECK(std::any_cast<int>(context.data) == 42);
    wanted = {context.needs(0), context.needs(1)};
    const Tensors saved = context.saved();
    return {grads[0] + grads[1] * saved[1], grads[0] + grads[1] * saved[0]};
  }
};

/// Saves its output: y = 2x, dy = y / x.
struct SavesOutput : Function<SavesOutput> {
  static constexpr const char* name = "saves_output";
  static Tensors forward(FunctionContext& context, const Tensors& inputs) {
    const Tensor y = inputs[0] * inputs[0];
    context.save_for_backward({inputs[0], y});
    return {y};
  }
  static Tensors backward(FunctionContext& context, const Tensors& grads) {
    const Tensors saved = context.saved();
    return {grads[0] * 2.0 * saved[1] / saved[0]};
  }
};

struct Flags : Function<Flags> {
  static constexpr const char* name = "flags";
  static Tensors forward(FunctionContext& context, const Tensors& inputs) {
    const Tensor constant = inputs[0] * 5.0;
    context.mark_non_differentiable({constant});
    return {inputs[0] * 2.0, constant, gt(inputs[0], 0.0)};
  }
  static Tensors backward(FunctionContext&, const Tensors& grads) {
    CHECK(grads.size() == 3);
    check_close(grads[1], {0, 0}, 0.0);
    CHECK(grads[2].dtype() == DType::boolean);
    return {grads[0] * 2.0};
  }
};

struct HandsThrough : Function<HandsThrough> {
  static constexpr const char* name = "hands_through";
  static Tensors forward(FunctionContext&, const Tensors& inputs) {
    return {inputs[0], inputs[0], inputs[1]};
  }
  static Tensors backward(FunctionContext&, const Tensors& grads) {
    return {grads[0] * 10.0 + grads[1] * 100.0, grads[2] * 1000.0};
  }
};

/// Computes its gradient by a backward of its own, twice over.
struct Nested : Function<Nested> {
  static constexpr const char* name = "nested";
  static Tensors forward(FunctionContext& context, const Tensors& inputs) {
    context.save_for_backward(inputs);
    return {inputs[0] * inputs[0] * inputs[0]};
  }
  static Tensors backward(FunctionContext& context, const Tensors& grads) {
    const GradMode recording(true);
    const Tensor x = context.saved()[0].detach();
    x.set_requires_grad();
    const Tensor y = Cube::apply({x})[0];
    y.backward(grads[0]);
    return {grad({Cube::apply({x})[0]}, {x}, {grads[0]})[0]};
  }
};

struct WrongCount : Function<WrongCount> {
  static constexpr const char* name = "wrong_count";
  static Tensors forward(FunctionContext&, const Tensors& inputs) { return {inputs[0] * 1.0}; }
  static Tensors backward(FunctionContext&, const Tensors& grads) { return {grads[0], grads[0]}; }
};

struct WrongShape : Function<WrongShape> {
  static constexpr const char* name = "wrong_shape";
  static Tensors forward(FunctionContext&, const Tensors& inputs) { return {inputs[0].sum()}; }
  static Tensors backward(FunctionContext&, const Tensors& grads) { return {grads[0]}; }
};

struct WritesWhatItSaved : Function<WritesWhatItSaved> {
  static constexpr const char* name = "writes_what_it_saved";
  static Tensors forward(FunctionContext& context, const Tensors& inputs) {
    const Tensor y = inputs[0] * 2.0;
    context.save_for_backward({y});
    (void)y.add_(1.0);
    return {y};
  }
  static Tensors backward(FunctionContext&, const Tensors& grads) { return grads; }
};

struct SavesTwice : Function<SavesTwice> {
  static constexpr const char* name = "saves_twice";
  static Tensors forward(FunctionContext& context, const Tensors& inputs) {
    context.save_for_backward(inputs);
    context.save_for_backward(inputs);
    return inputs;
  }
  static Tensors backward(FunctionContext&, const Tensors& grads) { return grads; }
};

struct Undefined : Function<Undefined> {
  static constexpr const char* name = "undefined";
  static Tensors forward(FunctionContext&, const Tensors&) { return {Tensor()}; }
  static Tensors backward(FunctionContext&, const Tensors& grads) { return grads; }
};

TEST_SUITE("autograd/custom_function") {
  TEST_CASE("the user's backward gives the gradient") {
    for_each_device([](Device device) {
      const double tolerance = tolerance_for(DType::float32, device);
      const Tensor x = leaf({1, -2}, device);
      const Tensor y = Cube::apply({x})[0];
      check_close(y, {1, -8}, tolerance);
      (y * 2.0).sum().backward();
      check_close(x.grad(), {6, 24}, tolerance);
    });
  }

  TEST_CASE("it can be differentiated again") {
    const Tensor x =
        Tensor::from_vector({3}, std::vector<double>{0.5, -1.5, 2}).set_requires_grad();
    const auto cube = [](const Tensors& inputs) { return Cube::apply(inputs); };
    const auto square = [](const Tensors& inputs) { return SavesOutput::apply(inputs); };
    CHECK_MESSAGE(grad_check(cube, {x}), grad_check(cube, {x}).message);
    CHECK_MESSAGE(grad_grad_check(cube, {x}), grad_grad_check(cube, {x}).message);
    CHECK_MESSAGE(grad_check(square, {x}), grad_check(square, {x}).message);
    CHECK_MESSAGE(grad_grad_check(square, {x}), grad_grad_check(square, {x}).message);
  }

  TEST_CASE("a once differentiable function refuses create_graph") {
    const Tensor x = leaf({1, 2});
    const Tensor y = OnceOnly::apply({x})[0].sum();
    CHECK_THROWS_WITH_AS(y.backward({}, {.create_graph = true}),
                         doctest::Contains("backward of once_only: it is marked once "
                                           "differentiable"),
                         GradError);
    CHECK_FALSE(x.grad().defined());
    y.backward();
    check_close(x.grad(), {2, 2}, 0.0);
  }

  TEST_CASE("outputs without a gradient get zeros, and needs tells what is used") {
    const Tensor a = leaf({1, 2});
    const Tensor b = leaf({3, 4});
    const Tensors both = SumAndProduct::apply({a, b});
    both[1].sum().backward({}, {.retain_graph = true});
    check_close(a.grad(), {3, 4}, 0.0);
    check_close(b.grad(), {1, 2}, 0.0);
    CHECK(SumAndProduct::wanted == std::vector<bool>{true, true});

    int calls = 0;
    const int hook = a.register_hook([&](const Tensor&) {
      ++calls;
      return Tensor();
    });
    const Tensor only_b = grad({both[0].sum() + both[1].sum()}, {b})[0];
    check_close(only_b, {2, 3}, 0.0);
    CHECK(calls == 0);  // though the backward returned a gradient for a
    a.remove_hook(hook);
    CHECK(SumAndProduct::wanted == std::vector<bool>{false, true});

    SumAndProduct::apply({a, b.detach()})[0].sum().backward();
    CHECK(SumAndProduct::wanted == std::vector<bool>{true, false});
    check_close(a.grad(), {4, 5}, 0.0);
  }

  TEST_CASE("nothing is recorded where no gradient is wanted") {
    const Tensor x = leaf({1, 2});
    CHECK_FALSE(Cube::apply({x.detach()})[0].requires_grad());
    const NoGradGuard guard;
    CHECK_FALSE(Cube::apply({x})[0].requires_grad());
  }

  TEST_CASE("marked and non-floating outputs carry no gradient") {
    const Tensor x = leaf({1, -2});
    const Tensors outputs = Flags::apply({x});
    CHECK(outputs[0].requires_grad());
    CHECK_FALSE(outputs[1].requires_grad());
    CHECK_FALSE(outputs[2].requires_grad());
    (outputs[0] * outputs[1]).sum().backward();
    check_close(x.grad(), {10, -20}, 0.0);
  }

  TEST_CASE("inputs handed through are new tensors on the same memory") {
    const Tensor x = leaf({1, 2});
    const Tensor constant = ones({2});
    const Tensors outputs = HandsThrough::apply({x, constant});
    CHECK_FALSE(outputs[0].is_same(x));
    CHECK(outputs[0].raw_data() == x.raw_data());
    CHECK_FALSE(outputs[0].is_leaf());
    CHECK(x.is_leaf());
    CHECK_FALSE(constant.requires_grad());
    (outputs[0] + outputs[1] + outputs[2]).sum().backward();
    check_close(x.grad(), {110, 110}, 0.0);
    CHECK_THROWS_AS((void)outputs[0].mul_(2.0), GradError);
    check_close(x, {1, 2}, 0.0);
  }

  TEST_CASE("backward inside of backward") {
    const Tensor x = leaf({1, -2});
    (Nested::apply({x})[0] + Nested::apply({x})[0]).sum().backward();
    check_close(x.grad(), {6, 24}, 0.0);
  }

  TEST_CASE("errors name the function, what is wrong and the line of apply") {
    const Tensor x = leaf({1, 2});
    CHECK_THROWS_WITH_AS(WrongCount::apply({x})[0].sum().backward(),
                         doctest::Contains("backward of wrong_count: returned 2 gradients for 1 "
                                           "inputs"),
                         GradError);
    CHECK_THROWS_WITH_AS(WrongShape::apply({x})[0].backward(),
                         doctest::Contains("backward of wrong_shape: the gradient of input 0 has "
                                           "shape [], the input has [2]"),
                         GradError);
    const Tensor y = WrongShape::apply({x})[0];
    const std::string line = std::to_string(__LINE__ - 1);
    CHECK_THROWS_WITH_AS(
        y.backward(), doctest::Contains(("custom_function_test.cpp:" + line).c_str()), GradError);
    CHECK_THROWS_WITH_AS((void)WritesWhatItSaved::apply({x}),
                         doctest::Contains("writes_what_it_saved: tensor 0 was changed in place "
                                           "after save_for_backward"),
                         GradError);
    CHECK_THROWS_WITH_AS((void)SavesTwice::apply({x}), doctest::Contains("was already called"),
                         StateError);
    CHECK_THROWS_WITH_AS((void)Undefined::apply({x}),
                         doctest::Contains("undefined: forward returned an undefined output 0"),
                         GradError);
    CHECK_FALSE(x.grad().defined());
  }

  TEST_CASE("saved tensors are checked and dropped like those of any operation") {
    const Tensor x = leaf({1, 2});
    const Tensor y = Cube::apply({x})[0].sum();
    (void)x.detach().add_(1.0);
    CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("backward of cube: a tensor saved"),
                         GradError);
    const Tensor z = Cube::apply({x})[0].sum();
    z.backward();
    CHECK_THROWS_WITH_AS(z.backward(), doctest::Contains("already used"), GradError);
    check_close(x.grad(), {12, 27}, 0.0);
  }
}

}  // namespace
}  // namespace capstan

#include <doctest/doctest.h>

#include "autograd/arithmetic.h"
#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/math.h"
#include "autograd/node.h"
#include "framework/tensor/factory.h"
#include "ops/creation.h"
#include "ops/elementwise.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;

Tensor leaf(const std::vector<float>& elements) {
  return Tensor::from_vector({static_cast<std::int64_t>(elements.size())}, elements)
      .set_requires_grad();
}

TEST_SUITE("autograd/saved") {
  TEST_CASE("a saved input that was written since is refused, with versions and line") {
    const Tensor x = leaf({1, 2});
    const Tensor w = ones({2});
    const Tensor y = (x * w).sum();
    const std::string line = "saved_test.cpp:" + std::to_string(__LINE__ - 1);
    (void)w.fill_(3.0);
    CHECK_THROWS_WITH_AS(y.backward(),
                         doctest::Contains("backward of mul: a tensor saved by its forward, "
                                           "float32[2] on cpu, was changed in place"),
                         GradError);
    CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains(line.c_str()), GradError);
    CHECK_FALSE(x.grad().defined());
  }

  TEST_CASE("a write through a view or detached tensor counts as well") {
    const Tensor x = leaf({1, 2});
    const Tensor y = exp(x);
    (void)y.detach().zero_();
    CHECK_THROWS_WITH_AS(y.sum().backward(), doctest::Contains("backward of exp"), GradError);
  }

  TEST_CASE("a write to what was not saved is no matter") {
    const Tensor x = leaf({1, 2});
    const Tensor w = ones({2});
    const Tensor y = (x + w).sum();
    (void)w.fill_(3.0);
    y.backward();
    check_close(x.grad(), {1, 1}, 0.0);
  }

  TEST_CASE("new memory behind a saved tensor is refused") {
    const Tensor x = leaf({1, 2});
    const Tensor w = leaf({3, 4});
    const Tensor y = (x * w).sum();
    w.set_data(ones({2}));
    CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("was given other memory by set_data"),
                         GradError);
    CHECK_FALSE(x.grad().defined());
  }

  TEST_CASE("backward drops what was saved, and a saved output makes no cycle") {
    std::vector<float> memory{1, 2};
    bool released = false;
    const auto blob = [&] {
      released = false;
      return from_blob(memory.data(), {2}, {}, [&] { released = true; });
    };
    const Tensor x = leaf({1, 2});
    Tensor y = x * blob();
    CHECK_FALSE(released);
    y.sum().backward();
    CHECK(released);  // though y is alive

    y = x * blob();
    y.sum().backward({}, {.retain_graph = true});
    CHECK_FALSE(released);
    y = Tensor();
    CHECK(released);

    {
      const Tensor result = blob();
      autograd::record(result, "test", {&x}, [saved = autograd::Saved::output(result)](auto&) {});
      CHECK(result.requires_grad());
    }
    CHECK(released);
  }

  TEST_CASE("a saved output carries its own history under create_graph") {
    const Tensor x = Tensor::from_vector({2}, std::vector<double>{0.5, -1.0}).set_requires_grad();
    const Tensor first = grad({exp(x).sum()}, {x}, {}, {.create_graph = true})[0];
    const Tensor second = grad({first.sum()}, {x})[0];
    check_close(second, {1.6487212707001282, 0.36787944117144233}, 1e-12);
  }

  TEST_CASE("an undefined tensor can be kept") {
    const autograd::Saved nothing{Tensor()};
    CHECK_FALSE(nothing.defined());
    const Tensor x = leaf({1, 2});
    const Tensor y = ops::clone(x);
    autograd::record(y, "test", {&x}, [nothing](autograd::BackwardContext& context) {
      CHECK_FALSE(nothing.get(context).defined());
      context.set(0, context.grad());
    });
    y.sum().backward();
    check_close(x.grad(), {1, 1}, 0.0);
  }

  TEST_CASE("a gradient of another shape, dtype or device is an error that names the node") {
    const Tensor x = leaf({1, 2});
    const auto with_gradient = [&](const Tensor& gradient) {
      const Tensor y = ops::clone(x);
      autograd::record(y, "odd", {&x}, [gradient](autograd::BackwardContext& context) {
        context.set(0, gradient);
      });
      return y.sum();
    };
    CHECK_THROWS_WITH_AS(with_gradient(ones({3})).backward(),
                         doctest::Contains("backward of odd: the gradient of input 0 has shape "
                                           "[3], the input has [2]"),
                         GradError);
    CHECK_THROWS_WITH_AS(with_gradient(ones({2}, {.dtype = DType::float64})).backward(),
                         doctest::Contains("is float64[2] on cpu, the input is float32 on cpu"),
                         GradError);
    with_gradient(Tensor()).backward();
    CHECK_FALSE(x.grad().defined());
  }
}

}  // namespace
}  // namespace capstan

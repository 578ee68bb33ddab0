#include "nn/module.h"

#include <doctest/doctest.h>

#include <memory>

#include "autograd/arithmetic.h"
#include "autograd/grad_mode.h"
#include "autograd/math.h"
#include "autograd/reduce.h"
#include "framework/tensor/factory.h"
#include "graphs/capture_scope.h"
#include "nn/container.h"
#include "nn/linear.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::for_each_device;

namespace {

/// y = scale * x, and a buffer that counts calls.
struct Scale : nn::Module {
  explicit Scale(float value, Device device = Device::cpu()) {
    scale =
        register_parameter("scale", Tensor::from_vector({1}, std::vector<float>{value}, device));
    calls = register_buffer("calls", zeros({}, {.dtype = DType::int64, .device = device}));
  }
  Tensor forward(const Tensor& x) override {
    calls.add_(1);
    return x * scale;
  }
  Tensor scale;
  Tensor calls;
};

struct Pair : nn::Module {
  Pair() {
    register_module("first", first);
    register_module("second", second);
  }
  Tensor forward(const Tensor& x) override { return second(first(x)); }
  Scale first{2.0f};
  Scale second{3.0f};
};

struct Net : nn::Module {
  Net() {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))); }
  nn::Linear fc1{4, 3};
  nn::Linear fc2{5, 2};  // does not fit fc1
};

/// Registers whatever a test asks for.
struct Registry : nn::Module {
  Tensor forward(const Tensor& x) override { return x; }
  using Module::register_buffer;
  using Module::register_module;
  using Module::register_parameter;
};

std::vector<std::string> names_of(const nn::NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

}  // namespace

TEST_SUITE("nn/module") {
  TEST_CASE("calling a module runs forward through its children") {
    Pair pair;
    const Tensor x = Tensor::from_vector({2}, std::vector<float>{1.0f, -2.0f});
    check_close(pair(x), {6.0, -12.0}, 0.0);
    CHECK(pair.first.calls.item<std::int64_t>() == 1);
  }

  TEST_CASE("names are paths, in the order of registration") {
    Pair pair;
    CHECK(names_of(pair.named_parameters()) ==
          std::vector<std::string>{"first.scale", "second.scale"});
    CHECK(names_of(pair.named_buffers()) ==
          std::vector<std::string>{"first.calls", "second.calls"});
    CHECK(pair.parameters()[1].is_same(pair.second.scale));
    CHECK(pair.buffers()[0].is_same(pair.first.calls));

    const auto children = pair.named_children();
    REQUIRE(children.size() == 2);
    CHECK(children[1].first == "second");
    CHECK(children[1].second == &pair.second);

    const auto modules = pair.named_modules();
    REQUIRE(modules.size() == 3);
    CHECK(modules[0].first.empty());
    CHECK(modules[0].second == &pair);
    CHECK(modules[2].first == "second");
    CHECK(pair.second.name() == "second");
  }

  TEST_CASE("a shared tensor and a shared module appear once, under their first path") {
    Registry registry;
    const Tensor weight = registry.register_parameter("a", zeros({2, 3}));
    registry.register_parameter("b", weight);
    const auto shared = std::make_shared<Scale>(1.0f);
    registry.register_module("x", shared);
    registry.register_module("y", shared);
    CHECK(names_of(registry.named_parameters()) == std::vector<std::string>{"a", "x.scale"});
    CHECK(names_of(registry.named_buffers()) == std::vector<std::string>{"x.calls"});
    CHECK(registry.named_modules().size() == 2);
    CHECK(registry.parameter_count() == 7);
  }

  TEST_CASE("a parameter requires a gradient, a buffer does not") {
    Scale scale(2.0f);
    CHECK(scale.scale.requires_grad());
    CHECK(scale.scale.is_leaf());
    CHECK_FALSE(scale.calls.requires_grad());
    scale.requires_grad_(false);
    CHECK_FALSE(scale.scale.requires_grad());
    scale.requires_grad_();
    CHECK(scale.scale.requires_grad());
  }

  TEST_CASE("bad names and children are refused with the module and the name") {
    Registry registry;
    registry.set_name("net");
    registry.register_parameter("weight", zeros({1}));
    CHECK_THROWS_WITH_AS(registry.register_parameter("", zeros({1})),
                         doctest::Contains("Registry \"net\" got an empty name"), ValueError);
    CHECK_THROWS_WITH_AS(registry.register_buffer("a.b", zeros({1})),
                         doctest::Contains("Registry \"net\" got the name \"a.b\"; a dot"),
                         ValueError);
    Scale child(1.0f);
    CHECK_THROWS_WITH_AS(registry.register_module("weight", child),
                         doctest::Contains("register_module: Registry \"net\" already has "
                                           "\"weight\""),
                         ValueError);
    CHECK(child.name().empty());
    CHECK_THROWS_WITH_AS(registry.register_module("child", std::shared_ptr<nn::Module>()),
                         doctest::Contains("\"child\" as a null pointer"), ValueError);
    CHECK_THROWS_WITH_AS(registry.register_parameter("bias", Tensor()),
                         doctest::Contains("\"bias\" undefined"), ValueError);
    CHECK_THROWS_AS(registry.register_parameter("labels", zeros({1}, {.dtype = DType::int64})),
                    DTypeError);
    CHECK(names_of(registry.named_parameters()) == std::vector<std::string>{"weight"});
  }

  TEST_CASE("a module cannot contain itself") {
    Registry outer;
    Registry inner;
    outer.register_module("inner", inner);
    CHECK_THROWS_WITH_AS(inner.register_module("outer", outer),
                         doctest::Contains("would contain itself as \"outer\""), ValueError);
    CHECK_THROWS_AS(outer.register_module("self", outer), ValueError);
    CHECK(outer.named_modules().size() == 2);
  }

  TEST_CASE("train and eval reach every module") {
    Pair pair;
    CHECK(pair.first.is_training());
    pair.eval();
    CHECK_FALSE(pair.is_training());
    CHECK_FALSE(pair.second.is_training());
    pair.train();
    CHECK(pair.second.is_training());
  }

  TEST_CASE("apply visits this module and all below once") {
    Pair pair;
    std::vector<nn::Module*> visited;
    pair.apply([&](nn::Module& module) { visited.push_back(&module); });
    CHECK(visited == std::vector<nn::Module*>{&pair, &pair.first, &pair.second});
  }

  TEST_CASE("zero_grad undefines gradients, or fills them with zeros in place") {
    Pair pair;
    sum(pair(ones({3}))).backward();
    check_close(pair.first.scale.grad(), {9.0}, 1e-6);

    const Tensor kept = pair.first.scale.grad();
    pair.zero_grad(/*set_to_none=*/false);
    CHECK(pair.first.scale.grad().is_same(kept));
    check_close(kept, {0.0}, 0.0);

    pair.zero_grad();
    CHECK_FALSE(pair.first.scale.grad().defined());
    pair.zero_grad(/*set_to_none=*/false);
    CHECK_FALSE(pair.first.scale.grad().defined());
  }

  TEST_CASE("zeroing a gradient that has a history cuts the history off") {
    Scale scale(2.0f);
    sum(square(scale(ones({3})))).backward({}, {.create_graph = true});
    REQUIRE(scale.scale.grad().requires_grad());
    scale.zero_grad(/*set_to_none=*/false);
    CHECK_FALSE(scale.scale.grad().requires_grad());
    check_close(scale.scale.grad(), {0.0}, 0.0);
  }

  TEST_CASE("to moves memory, keeps handles and values, and drops gradients that moved") {
    for_each_device([](Device device) {
      Pair pair;
      sum(pair(ones({3}))).backward();
      const Tensor handle = pair.first.scale;
      pair.to(device);
      CHECK(pair.first.scale.is_same(handle));
      CHECK(handle.device() == device);
      CHECK(pair.second.calls.device() == device);
      CHECK(pair.second.calls.item<std::int64_t>() == 1);
      CHECK(handle.requires_grad());
      CHECK(handle.grad().defined() == device.is_host());

      pair.zero_grad();
      sum(pair(ones({3}, {.device = device}))).backward();
      check_close(handle.grad(), {9.0}, 1e-6);
      pair.to(Device::cpu());
      check_close(pair(ones({1})), {6.0}, 0.0);
    });
  }

  TEST_CASE("to is refused while capturing, and leaves the capture valid") {
    for_each_device([](Device device) {
      Scale scale(2.0f, device);
      const Tensor y = zeros({1}, {.device = device});
      Graph graph(device);
      capture(graph, [&] {
        CHECK_THROWS_WITH_AS(scale.to(device), doctest::Contains("to: not possible while"),
                             CaptureError);
        const NoGradGuard no_grad;
        y.copy_(scale.scale);
      });
      graph.replay();
      check_close(y, {2.0}, 0.0);
    });
  }

  TEST_CASE("an error inside names the module path, the shapes and the user's line") {
    Net net;
    net.set_name("net");
    const Tensor x = zeros({2, 4});
    const int line = __LINE__ + 2;
    try {
      (void)net(x);
      FAIL("the sizes do not fit");
    } catch (const ShapeError& error) {
      const std::string text = error.what();
      INFO(text);
      CHECK(text.starts_with("in net.fc2: linear: "));
      CHECK(text.find("[2, 3]") != std::string::npos);
      CHECK(text.find("[2, 5]") != std::string::npos);
      CHECK(text.ends_with("module_test.cpp:" + std::to_string(line) + ")"));
    }
    // The path is that of the failed call alone.
    try {
      (void)net.fc1(zeros({2, 7}));
    } catch (const ShapeError& error) {
      CHECK(std::string(error.what()).starts_with("in fc1: linear: "));
    }
  }

  TEST_CASE("a module without children moves with everything; one with member children refuses") {
    Scale from(2.0f);
    from.set_name("scale");
    from.eval();
    Scale to(std::move(from));
    CHECK(to.name() == "scale");
    CHECK_FALSE(to.is_training());
    REQUIRE(to.parameters().size() == 1);
    CHECK(to.parameters()[0].is_same(to.scale));

    Pair pair;
    CHECK_THROWS_WITH_AS(Pair(std::move(pair)),
                         doctest::Contains("cannot move, since its child \"first\" is registered "
                                           "by reference"),
                         StateError);
    CHECK(pair.named_parameters().size() == 2);
  }
}

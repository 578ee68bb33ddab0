#include "nn/state_dict.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "framework/tensor/factory.h"
#include "graphs/capture_scope.h"
#include "nn/activations.h"
#include "nn/container.h"
#include "nn/linear.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::check_identical;
using testing::for_each_device;
using testing::random_tensor;

namespace {

nn::Sequential make_net(Device device = Device::cpu()) {
  return nn::Sequential(nn::Linear(3, 4, {.device = device}), nn::ReLU(),
                        nn::Linear(4, 2, {.device = device}));
}

/// Values for every name of `net`, none of which it holds.
nn::StateDict fresh_state(const nn::Module& net, Device device = Device::cpu()) {
  nn::StateDict state;
  std::uint64_t seed = 1;
  for (const auto& [name, tensor] : net.state_dict()) {
    state.emplace_back(name, random_tensor(tensor.shape(), seed++, tensor.dtype(), device));
  }
  return state;
}

/// A state that must be refused, and proof that it changed nothing.
template <typename ErrorType>
void check_refused(nn::Sequential& net, const nn::StateDict& state, const char* text) {
  std::vector<Tensor> before;
  for (const Tensor& parameter : net.parameters()) before.push_back(parameter.detach().clone());
  CHECK_THROWS_WITH_AS(net.load_state_dict(state), doctest::Contains(text), ErrorType);
  for (std::size_t i = 0; i < before.size(); ++i) {
    check_identical(net.parameters()[i].detach(), before[i]);
  }
}

}  // namespace

TEST_SUITE("nn/state_dict") {
  TEST_CASE("a state dict names everything and shares memory, without history") {
    nn::Sequential net = make_net();
    const nn::StateDict state = net.state_dict();
    REQUIRE(state.size() == 4);
    CHECK(state[0].first == "0.weight");
    CHECK(state[3].first == "2.bias");
    CHECK_FALSE(state[0].second.requires_grad());
    state[3].second.fill_(7.0);
    check_close(net.parameters()[3].detach(), {7.0, 7.0}, 0.0);
  }

  TEST_CASE("loading copies in place, in any order, and keeps handles") {
    for_each_device([](Device device) {
      nn::Sequential net = make_net(device);
      const std::vector<Tensor> handles = net.parameters();
      const void* const address = handles[0].raw_data();
      nn::StateDict state = fresh_state(net);  // on the CPU: loading crosses devices
      const nn::StateDict wanted = state;
      std::reverse(state.begin(), state.end());
      net.load_state_dict(state);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        CHECK(net.parameters()[i].is_same(handles[i]));
        check_identical(handles[i].detach().to(Device::cpu()), wanted[i].second);
      }
      CHECK(handles[0].raw_data() == address);
      CHECK(handles[0].requires_grad());
    });
  }

  TEST_CASE("missing and unexpected names are listed, and nothing changes") {
    nn::Sequential net = make_net();
    nn::StateDict state = fresh_state(net);
    state[1].first = "0.offset";
    state.erase(state.begin() + 2);
    check_refused<ValueError>(net, state, "missing 0.bias, 2.weight, unexpected 0.offset");
  }

  TEST_CASE("not strict, known names are loaded and others left alone") {
    nn::Sequential net = make_net();
    const Tensor untouched = net.parameters()[0].detach().clone();
    const nn::StateDict state{{"2.bias", full({2}, 5.0)}, {"other", zeros({1})}};
    net.load_state_dict(state, /*strict=*/false);
    check_close(net.parameters()[3].detach(), {5.0, 5.0}, 0.0);
    check_identical(net.parameters()[0].detach(), untouched);
  }

  TEST_CASE("shapes, dtypes, undefined and repeated tensors are refused by name") {
    nn::Sequential net = make_net();
    nn::StateDict state = fresh_state(net);
    state[3].second = zeros({3});
    check_refused<ShapeError>(net, state, "2.bias needs shape [2], got [3]");
    state[3].second = zeros({2}, {.dtype = DType::float64});
    check_refused<DTypeError>(net, state, "2.bias needs float32, got float64");
    state[3].second = Tensor();
    check_refused<ValueError>(net, state, "2.bias is undefined");
    state[3] = state[2];
    check_refused<ValueError>(net, state, "2.weight is given twice");
  }

  TEST_CASE("loading is refused while capturing") {
    for_each_device([](Device device) {
      nn::Sequential net = make_net(device);
      const nn::StateDict state = fresh_state(net, device);
      Graph graph(device);
      const Tensor y = zeros({1}, {.device = device});
      capture(graph, [&] {
        CHECK_THROWS_WITH_AS(net.load_state_dict(state),
                             doctest::Contains("load_state_dict: not possible while"),
                             CaptureError);
        y.fill_(1.0);
      });
      graph.replay();
      check_close(y, {1.0}, 0.0);
    });
  }

  TEST_CASE("a model's state loads into another model, which then computes the same") {
    for_each_device([](Device device) {
      nn::Sequential a = make_net(device);
      nn::Sequential b = make_net(device);
      const Tensor x = random_tensor({5, 3}, 9, DType::float32, device);
      CHECK_FALSE(testing::identical(a(x).detach(), b(x).detach()));
      b.load_state_dict(a.state_dict());
      check_identical(a(x).detach(), b(x).detach());
    });
  }
}

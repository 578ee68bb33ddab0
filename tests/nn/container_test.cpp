#include "nn/container.h"

#include <doctest/doctest.h>

#include <utility>

#include "framework/tensor/factory.h"
#include "nn/activations.h"
#include "nn/linear.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;

TEST_SUITE("nn/container") {
  TEST_CASE("Sequential calls its modules in order and names them by position") {
    nn::Sequential net(nn::Linear(1, 1), nn::ReLU());
    net.push_back(nn::Linear(1, 1));
    CHECK(net.size() == 3);
    CHECK(net[0].name() == "0");
    CHECK(net.named_parameters()[2].first == "2.weight");
    const auto scalar = [](float value) {
      return Tensor::from_vector({1}, std::vector<float>{value});
    };
    net.load_state_dict({{"0.weight", scalar(-1).reshape({1, 1})},
                         {"0.bias", scalar(1)},
                         {"2.weight", scalar(10).reshape({1, 1})},
                         {"2.bias", scalar(5)}});
    // max(1 - x, 0) * 10 + 5
    const Tensor x = Tensor::from_vector({2, 1}, std::vector<float>{-2.0f, 3.0f});
    check_close(net(x).detach(), {35.0, 5.0}, 0.0);
  }

  TEST_CASE("it nests, moves, and an empty one returns its input") {
    nn::Sequential inner(nn::Linear(2, 3), nn::Tanh());
    const Tensor weight = inner.parameters()[0];
    nn::Sequential outer(std::move(inner), nn::Linear(3, 1));
    CHECK(outer.named_parameters()[0].first == "0.0.weight");
    CHECK(outer.named_parameters()[0].second.is_same(weight));

    nn::Sequential moved(std::move(outer));
    CHECK(moved.named_modules().size() == 5);
    CHECK(moved(zeros({4, 2})).shape() == Shape{4, 1});

    nn::Sequential none;
    const Tensor x = zeros({1});
    CHECK(none(x).is_same(x));
    CHECK(none.size() == 0);
  }

  TEST_CASE("a shared module is called twice and counted once") {
    const auto layer = std::make_shared<nn::Linear>(2, 2);
    nn::Sequential net;
    net.push_back(layer);
    net.push_back(layer);
    CHECK(net.parameter_count() == 6);
    CHECK(&net[0] == &net[1]);
    CHECK(net(zeros({1, 2})).shape() == Shape{1, 2});
  }

  TEST_CASE("errors name the position, null modules and bad indices are refused") {
    nn::Sequential net(nn::Linear(2, 3), nn::ReLU(), nn::Linear(4, 1));
    net.set_name("net");
    CHECK_THROWS_WITH_AS((void)net(zeros({1, 2})), doctest::Contains("in net.2: linear:"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(
        (void)net[3], doctest::Contains("sequential: index 3 is out of range [0, 3)"), IndexError);
    CHECK_THROWS_AS((void)net[-1], IndexError);
    CHECK_THROWS_AS(net.push_back(std::shared_ptr<nn::Module>()), ValueError);
    CHECK(net.size() == 3);
  }
}

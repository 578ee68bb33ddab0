#include "nn/optim/optimizer.h"

#include <doctest/doctest.h>

#include <limits>

#include "autograd/arithmetic.h"
#include "autograd/reduce.h"
#include "framework/core/counters.h"
#include "framework/tensor/factory.h"
#include "graphs/capture_scope.h"
#include "nn/optim/adam.h"
#include "nn/optim/sgd.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::check_identical;
using testing::for_each_device;

namespace {

Tensor make_parameter(const Shape& shape, Device device = Device::cpu()) {
  return ones(shape, {.device = device}).set_requires_grad();
}

}  // namespace

TEST_SUITE("nn/optim/optimizer") {
  TEST_CASE("a parameter without a gradient is left alone, the step still counts") {
    for_each_device([](Device device) {
      const Tensor used = make_parameter({2}, device);
      const Tensor unused = make_parameter({2}, device);
      nn::SGD sgd({used, unused}, {.learning_rate = 1.0, .weight_decay = 0.5});
      used.set_grad(zeros({2}, {.device = device}));
      sgd.step();
      check_close(used.detach(), {0.5, 0.5}, 0.0);
      check_close(unused.detach(), {1.0, 1.0}, 0.0);
      CHECK(sgd.step_count() == 1);
    });
  }

  TEST_CASE("a gradient in any strides is taken by value") {
    for_each_device([](Device device) {
      const Tensor p = zeros({2, 3}, {.device = device});
      p.set_requires_grad();
      const Tensor g =
          Tensor::from_vector({3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6}, device).t();
      REQUIRE_FALSE(g.is_contiguous());
      p.set_grad(g);
      nn::SGD sgd({p}, {.learning_rate = 1.0});
      sgd.step();
      check_close(p.detach(), {-1, -3, -5, -2, -4, -6}, 0.0);
    });
  }

  TEST_CASE("a step is not recorded, and lets go of the gradients") {
    const Tensor p = make_parameter({2});
    nn::SGD sgd({p}, {.learning_rate = 0.1});
    sum(p * 2.0).backward();
    sgd.step();
    CHECK(p.is_leaf());
    CHECK(p.requires_grad());
    const Tensor grad = p.grad();
    sgd.zero_grad();
    CHECK_FALSE(p.grad().defined());
    CHECK(grad.impl()->use_count() == 1);
  }

  TEST_CASE("zero_grad can fill in place") {
    const Tensor p = make_parameter({2});
    nn::SGD sgd({p}, {.learning_rate = 0.1});
    sum(p * 2.0).backward();
    const Tensor grad = p.grad();
    sgd.zero_grad(/*set_to_none=*/false);
    CHECK(p.grad().is_same(grad));
    check_close(grad, {0.0, 0.0}, 0.0);
  }

  TEST_CASE("a step allocates nothing on the device") {
    for_each_device([](Device device) {
      const Tensor p = make_parameter({100}, device);
      p.set_grad(ones({100}, {.device = device}));
      nn::Adam adam({p});
      adam.step();
      const std::int64_t before = counters().allocations;
      adam.step();
      adam.set_learning_rate(0.5);
      CHECK(counters().allocations == before);
    });
  }

  TEST_CASE("bad parameter lists are refused with the position") {
    const Tensor p = make_parameter({2});
    CHECK_THROWS_WITH_AS(nn::SGD({}), doctest::Contains("sgd: there are no parameters"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::Adam({p, p}),
                         doctest::Contains("adam: parameter 1 (float32[2] on cpu) is listed twice"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::SGD({p, zeros({3})}),
                         doctest::Contains("sgd: parameter 1 (float32[3] on cpu) is not a leaf"),
                         ValueError);
    CHECK_THROWS_WITH_AS(nn::SGD({p, p * 2.0}), doctest::Contains("is not a leaf"), ValueError);
    const Tensor wide = zeros({2}, {.dtype = DType::float64});
    wide.set_requires_grad();
    CHECK_THROWS_WITH_AS(
        nn::SGD({p, wide}),
        doctest::Contains("sgd: parameter 1 is float64 but parameter 0 is float32"), DTypeError);
    const Tensor strided = zeros({2, 3}).t();
    strided.set_requires_grad();
    CHECK_THROWS_WITH_AS(nn::SGD({strided}), doctest::Contains("is not contiguous"), ValueError);
    if (testing::needs_gpu()) {
      CHECK_THROWS_AS(nn::SGD({p, make_parameter({2}, Device::gpu())}), DeviceError);
    }
  }

  TEST_CASE("a parameter that moved after the optimiser was made is refused") {
    if (!testing::needs_gpu()) return;
    const Tensor p = make_parameter({2});
    nn::SGD sgd({p}, {.learning_rate = 1.0});
    p.set_data(zeros({2}, {.device = Device::gpu()}));
    p.set_grad(ones({2}, {.device = Device::gpu()}));
    CHECK_THROWS_WITH_AS(sgd.step(), doctest::Contains("make the optimiser after moving the model"),
                         DeviceError);
  }

  TEST_CASE("a learning rate is checked and refused while capturing, which stays valid") {
    for_each_device([](Device device) {
      const Tensor p = make_parameter({1}, device);
      p.set_grad(ones({1}, {.device = device}));
      nn::SGD sgd({p}, {.learning_rate = 0.25});
      CHECK_THROWS_AS(sgd.set_learning_rate(std::numeric_limits<double>::quiet_NaN()), ValueError);
      Graph graph(device);
      capture(graph, [&] {
        CHECK_THROWS_WITH_AS(sgd.set_learning_rate(0.5),
                             doctest::Contains("set_learning_rate: not possible while"),
                             CaptureError);
        sgd.step();
      });
      CHECK(sgd.learning_rate() == 0.25);
      graph.replay();
      check_close(p.detach(), {0.75}, 0.0);
    });
  }

  TEST_CASE("state goes out and comes back: the second half of a run repeats exactly") {
    for_each_device([](Device device) {
      const auto run = [](nn::Optimizer& optimizer, const Tensor& p, int from, int to) {
        for (int step = from; step < to; ++step) {
          p.set_grad(testing::random_tensor({5}, static_cast<std::uint64_t>(step) + 1,
                                            DType::float32, p.device()));
          optimizer.step();
        }
      };
      const Tensor p = make_parameter({5}, device);
      nn::Adam adam({p}, {.learning_rate = 0.1});
      run(adam, p, 0, 3);
      nn::StateDict saved;
      for (const auto& [name, tensor] : adam.state_dict()) saved.emplace_back(name, tensor.clone());
      const Tensor saved_p = p.detach().clone();
      run(adam, p, 3, 6);

      const Tensor q = saved_p.clone().set_requires_grad();
      nn::Adam other({q}, {.learning_rate = 9.0});
      const void* const address = other.step_tensor().raw_data();
      other.load_state_dict(saved);
      CHECK(other.step_count() == 3);
      CHECK(other.learning_rate() == 0.1);
      CHECK(other.step_tensor().raw_data() == address);
      run(other, q, 3, 6);
      check_identical(q.detach(), p.detach());
    });
  }

  TEST_CASE("state names its parts, and a state of another kind is refused whole") {
    const Tensor p = make_parameter({2});
    const auto names_of = [](const nn::Optimizer& optimizer) {
      std::vector<std::string> names;
      for (const auto& [name, tensor] : optimizer.state_dict()) names.push_back(name);
      return names;
    };
    nn::SGD plain({p}, {.learning_rate = 0.1});
    nn::SGD sgd({p}, {.learning_rate = 0.1, .momentum = 0.9});
    nn::Adam adam({p});
    CHECK(names_of(plain) == std::vector<std::string>{"step", "hyper"});
    CHECK(names_of(sgd) == std::vector<std::string>{"step", "hyper", "0.momentum"});
    CHECK(names_of(adam) ==
          std::vector<std::string>{"step", "hyper", "0.first_moment", "0.second_moment"});
    CHECK_THROWS_WITH_AS(adam.load_state_dict(sgd.state_dict()),
                         doctest::Contains("missing 0.first_moment, 0.second_moment, unexpected "
                                           "0.momentum"),
                         ValueError);
    CHECK(adam.learning_rate() == 1e-3);
    CHECK(adam.step_count() == 0);
  }
}

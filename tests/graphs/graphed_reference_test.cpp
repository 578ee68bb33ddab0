// What PyTorch's own tests of make_graphed_callables check, in this library's terms.

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "autograd/arithmetic.h"
#include "autograd/autocast.h"
#include "autograd/grad_mode.h"
#include "autograd/linalg.h"
#include "autograd/loss.h"
#include "autograd/math.h"
#include "autograd/reduce.h"
#include "framework/random/generator.h"
#include "graphs/graphed_callable.h"
#include "nn/activations.h"
#include "nn/container.h"
#include "nn/linear.h"
#include "nn/optim/sgd.h"
#include "ops/creation.h"
#include "tests/graphs/sibling_program.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;

namespace {

constexpr std::int64_t kBatch = 8;

// Three networks, one of them with a map in and out, a loss and a function between them.
struct Network {
  explicit Network(Device place)
      : device(place),
        init(11, place),
        masks(7, place),
        first(nn::Linear(6, 10, options()), nn::ReLU(), nn::Dropout(0.3, &masks)),
        second(nn::Linear(10, 10, options()), nn::Tanh()),
        third(10, 4, options()) {}

  [[nodiscard]] nn::LinearOptions options() const { return {.device = device, .generator = &init}; }
  [[nodiscard]] std::vector<Tensor> parameters() const {
    std::vector<Tensor> all = first.parameters();
    for (const nn::Module* part :
         {static_cast<const nn::Module*>(&second), static_cast<const nn::Module*>(&third)}) {
      for (const Tensor& parameter : part->parameters()) all.push_back(parameter);
    }
    return all;
  }

  TensorTree between(const TensorTree& x) const {
    return TensorTree::map({{"scaled", Tensor(x["h"]) * 2.0}, {"rest", Tensor(x["skip"]) + 1.0}});
  }
  Tensor third_of(const Tensor& h) { return third.forward(h); }
  static Tensor loss_of(const Tensor& y, const Tensor& target) { return mse_loss(y, target); }

  // The eager way; graphed modules replay where they were graphed.
  Tensor loss(const Tensor& x, const Tensor& unused, const Tensor& target) {
    const Tensor h = second(first(x));
    const TensorTree pair = TensorTree::map({{"h", h}, {"skip", h.detach()}, {"unused", unused}});
    const TensorTree mixed = graphed_between ? (*graphed_between)(pair) : between(pair);
    const Tensor joined = Tensor(mixed["scaled"]) + Tensor(mixed["rest"]);
    const Tensor y = third(joined);
    return graphed_loss ? (*graphed_loss)(y, target).tensor() : loss_of(y, target);
  }

  Device device;
  Generator init;
  Generator masks;
  nn::Sequential first;
  nn::Sequential second;
  nn::Linear third;
  std::optional<GraphedCallable> graphed_between;
  std::optional<GraphedCallable> graphed_loss;
};

void graph_all(Network& network, std::optional<DType> half) {
  const Device device = network.device;
  const DType dtype = half.value_or(DType::float32);
  const auto sample = [&](const Shape& shape, DType kind, bool grad) {
    const Tensor made = ones(shape, {.dtype = kind, .device = device});
    return grad ? made.set_requires_grad() : made;
  };
  // Under Autocast tanh computes in what the linear layer hands it.
  const Tensor h = sample({kBatch, 10}, dtype, true);
  std::vector<GraphedCallable> all = make_graphed_callables(
      {Graphable(network.first, sample({kBatch, 6}, DType::float32, false)),
       Graphable(network.second, h),
       Graphable(
           [&network](const TensorTree& x) { return network.between(x); },
           TensorTree::map(
               {{"h", h}, {"skip", h.detach()}, {"unused", sample({3}, DType::float32, true)}})),
       Graphable(network.third, h),
       Graphable(Network::loss_of, TensorTree({sample({kBatch, 4}, dtype, true),
                                               sample({kBatch, 4}, DType::float32, false)}))},
      {.allow_unused_input = true});
  network.graphed_between = all[2];
  network.graphed_loss = all[4];
}

void check_training(Device device, std::optional<DType> half, bool cache) {
  Network control(device);
  Network graphed(device);
  std::optional<Autocast> autocast;
  const auto enter = [&] {
    if (half) autocast.emplace(device.type, AutocastOptions{.dtype = half, .cache_enabled = cache});
  };
  enter();
  graph_all(graphed, half);
  autocast.reset();

  nn::SGD control_optimizer(control.parameters(), {.learning_rate = 0.1});
  nn::SGD graphed_optimizer(graphed.parameters(), {.learning_rate = 0.1});
  for (std::uint64_t i = 0; i < 6; ++i) {
    const Tensor x = random_tensor({kBatch, 6}, i, DType::float32, device);
    const Tensor target = random_tensor({kBatch, 4}, 50 + i, DType::float32, device);
    const Tensor unused = ones({3}, {.device = device}).set_requires_grad();
    std::vector<Tensor> losses;
    for (auto [network, optimizer] :
         {std::pair(&control, &control_optimizer), std::pair(&graphed, &graphed_optimizer)}) {
      optimizer->zero_grad();
      enter();
      const Tensor loss = network->loss(x, unused, target);
      autocast.reset();
      loss.backward();
      optimizer->step();
      losses.push_back(loss.detach());
    }
    check_identical(losses[1], losses[0]);
    CHECK_FALSE(unused.grad().defined());
  }
  const std::vector<Tensor> want = control.parameters();
  const std::vector<Tensor> got = graphed.parameters();
  for (std::size_t i = 0; i < want.size(); ++i) {
    check_identical(got[i].detach(), want[i].detach());
    check_identical(got[i].grad(), want[i].grad());
  }
  CHECK(graphed.masks.state() == control.masks.state());

  for (Network* network : {&control, &graphed}) network->first.eval();
  const NoGradGuard no_grad;
  enter();
  const Tensor x = random_tensor({kBatch, 6}, 99, DType::float32, device);
  check_identical(graphed.first(x), control.first(x));
}

}  // namespace

TEST_SUITE("graphs/graphed_reference") {
  TEST_CASE("five callables of one call train as their ungraphed twins, and evaluate") {
    for_each_device([](Device device) { check_training(device, {}, false); });
  }

  TEST_CASE("the same under Autocast, its cache off") {
    for_each_device([](Device device) { check_training(device, DType::bfloat16, false); });
  }

  TEST_CASE("the same under Autocast, its cache on: conversions become part of the graphs") {
    for_each_device([](Device device) { check_training(device, DType::bfloat16, true); });
  }

  TEST_CASE("C5: a capture may be the first thing that a process does") {
    for (const char* way : {"matmul", "convolution", "callable"}) {
      check_silent("fresh_program", std::string("cpu ") + way);
      if (gpu_available()) check_silent("fresh_program", std::string("gpu ") + way);
    }
  }

  TEST_CASE("a module without parameters works, with gradients and without") {
    for_each_device([](Device device) {
      nn::Sequential module{nn::ReLU(), nn::Tanh()};
      const Tensor x = random_tensor({4}, 1, DType::float32, device);
      const Tensor want = module(x);
      const GraphedCallable graphed = make_graphed_callables(module, x);
      check_identical(module(x), want);
      CHECK(graphed.backward_graph() == nullptr);
      const NoGradGuard no_grad;
      check_identical(module(x), want);
      CHECK(graphed.stats().replays == 2);
    });
  }

  TEST_CASE("reset releases the chosen callable alone") {
    for_each_device([](Device device) {
      const Tensor sample = ones({64}, {.device = device}).set_requires_grad();
      std::vector<GraphedCallable> all =
          make_graphed_callables({Graphable([](const Tensor& x) { return tanh(x); }, sample, "a"),
                                  Graphable([](const Tensor& x) { return x * x; }, sample, "b")});
      const Tensor x = random_tensor({64}, 1, DType::float32, device).set_requires_grad();
      const Tensor y = all[1](x);
      all[0].reset();
      CHECK_THROWS_AS((void)all[0](x), StateError);
      y.sum().backward();
      check_identical(x.grad(), (x.detach() * 2.0));
      check_identical(Tensor(all[1](x)).detach(), (x * x).detach());
    });
  }

  TEST_CASE("results that were let go keep no memory: the pool does not grow with calls") {
    for_each_device([](Device device) {
      GraphedCallable graphed =
          make_graphed_callables([](const Tensor& x) { return tanh(x * 2.0); },
                                 ones({1 << 16}, {.device = device}).set_requires_grad());
      const Tensor x = random_tensor({1 << 16}, 1, DType::float32, device).set_requires_grad();
      const auto once = [&] {
        x.set_grad(Tensor());
        Tensor(graphed(x)).sum().backward();
        synchronize(device);
      };
      once();
      once();
      const std::int64_t pool = graphed.pool().stats().reserved_bytes;
      const std::int64_t all = allocator(device).stats().total.reserved_bytes;
      for (int i = 0; i < 20; ++i) once();
      CHECK(graphed.pool().stats().reserved_bytes == pool);
      CHECK(allocator(device).stats().total.reserved_bytes == all);
    });
  }
}

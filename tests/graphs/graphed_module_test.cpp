#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "autograd/arithmetic.h"
#include "autograd/grad_mode.h"
#include "autograd/linalg.h"
#include "autograd/loss.h"
#include "autograd/math.h"
#include "autograd/reduce.h"
#include "framework/core/counters.h"
#include "framework/random/generator.h"
#include "graphs/graphed_callable.h"
#include "nn/activations.h"
#include "nn/container.h"
#include "nn/linear.h"
#include "nn/optim/adam.h"
#include "nn/optim/sgd.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;
using doctest::Contains;

namespace {

Tensor leaf(const Shape& shape, std::uint64_t seed, Device device) {
  return random_tensor(shape, seed, DType::float32, device).set_requires_grad();
}
Tensor data(const Shape& shape, std::uint64_t seed, Device device) {
  return random_tensor(shape, seed, DType::float32, device);
}

// Weights from its own generator, dropout from another.
struct Net {
  explicit Net(Device device)
      : init(11, device),
        masks(7, device),
        model(nn::Linear(6, 8, {.device = device, .generator = &init}), nn::ReLU(),
              nn::Dropout(0.25, &masks), nn::Linear(8, 3, {.device = device, .generator = &init})) {
  }
  Generator init;
  Generator masks;
  nn::Sequential model;
};

// h <- h / 2 + x, and counts calls out of place, as a mistake, if told to.
class Recurrent : public nn::Module {
 public:
  explicit Recurrent(Device device, bool rebinds = false)
      : h(register_buffer("h", full({2}, 8.0, {.device = device}))),
        w(register_parameter("w", ones({2}, {.device = device}))),
        rebinds_(rebinds) {}
  Tensor forward(const Tensor& x) override {
    {
      const NoGradGuard no_grad;
      if (rebinds_) {
        h.set_data(h * 0.5 + x);
      } else {
        h.mul_(0.5).add_(x.detach());
      }
    }
    return x * w;
  }
  Tensor h;
  Tensor w;

 private:
  bool rebinds_;
};

class Scale : public nn::Module {
 public:
  explicit Scale(Device device) : w(register_parameter("w", full({2}, 1.0, {.device = device}))) {}
  Tensor forward(const Tensor& x) override { return x * w; }
  using nn::Module::register_buffer;
  using nn::Module::register_parameter;
  Tensor w;
};

}  // namespace

TEST_SUITE("graphs/graphed_module") {
  TEST_CASE("a graphed module trains as the eager one does, bit for bit") {
    for_each_device([](Device device) {
      Net eager(device);
      Net graphed(device);
      make_graphed_callables(graphed.model, data({5, 6}, 1, device));
      nn::Adam adam_1(eager.model.parameters(), {.learning_rate = 0.01});
      nn::Adam adam_2(graphed.model.parameters(), {.learning_rate = 0.01});
      for (std::uint64_t i = 0; i < 10; ++i) {
        const Tensor x = data({5, 6}, 100 + i, device);
        const Tensor t = data({5, 3}, 200 + i, device);
        std::vector<Tensor> losses;
        for (auto [net, adam] : {std::pair(&eager, &adam_1), std::pair(&graphed, &adam_2)}) {
          adam->zero_grad();
          const Tensor loss = mse_loss(net->model(x), t);
          loss.backward();
          adam->step();
          losses.push_back(loss.detach());
        }
        check_identical(losses[1], losses[0]);
      }
      const auto want = eager.model.parameters();
      const auto got = graphed.model.parameters();
      for (std::size_t i = 0; i < want.size(); ++i) {
        check_identical(got[i].detach(), want[i].detach());
        check_identical(got[i].grad(), want[i].grad());
      }
      CHECK(graphed.masks.state() == eager.masks.state());
    });
  }

  TEST_CASE("C3, R8: graphing leaves parameters, buffers, gradients and generators alone") {
    for_each_device([](Device device) {
      Recurrent module(device);
      Net net(device);
      const GeneratorState state = net.masks.state();
      const Tensor grad = data({2}, 3, device);
      module.w.set_grad(grad);
      const Tensor before = grad.clone();
      const Tensor weight = net.model.parameters()[0].detach().clone();
      make_graphed_callables({Graphable(module, ones({2}, {.device = device})),
                              Graphable(net.model, data({5, 6}, 1, device))});
      check_close(module.h, {8, 8}, 0.0);
      CHECK(module.w.grad().is_same(grad));
      check_identical(module.w.grad(), before);
      CHECK(net.masks.state() == state);
      check_identical(net.model.parameters()[0].detach(), weight);
      (void)module(ones({2}, {.device = device}));
      check_close(module.h, {5, 5}, 0.0);
    });
  }

  TEST_CASE("C2: a buffer that gets other memory in the forward is refused, naming it") {
    for_each_device([](Device device) {
      Recurrent module(device, true);
      CHECK_THROWS_WITH_AS(make_graphed_callables(module, ones({2}, {.device = device})),
                           Contains("buffer \"h\" was given other memory"), CaptureError);
      check_close(module.h, {8, 8}, 0.0);
      CHECK_FALSE(module.is_forward_replaced());
    });
  }

  TEST_CASE("H2, R7: a parameter that changed is an error that names it") {
    for_each_device([](Device device) {
      const Tensor sample = ones({2}, {.device = device});
      const auto changed = [&](const std::function<void(Scale&)>& change, const char* what) {
        CAPTURE(what);
        Scale module(device);
        make_graphed_callables(module, sample, {.name = "scale"});
        check_close(module(sample).detach(), {1, 1}, 0.0);
        change(module);
        CHECK_THROWS_WITH_AS((void)module(sample), Contains(what), StateError);
        CHECK_THROWS_WITH_AS((void)module(sample), Contains(what), StateError);  // and again
      };
      changed([&](Scale& m) { m.w.set_data(full({2}, 3.0, {.device = device})); },
              "scale: parameter \"w\" was given other memory (set_data)");
      changed([&](Scale& m) { m.w.set_requires_grad(false); }, "parameter \"w\" was frozen");
      changed([&](Scale& m) { m.register_parameter("v", ones({2}, {.device = device})); },
              "parameter \"v\" was added");
      changed([&](Scale& m) { m.register_buffer("b", ones({2}, {.device = device})); },
              "buffer \"b\" was added");

      Scale module(device);
      make_graphed_callables(module, sample);
      {
        const NoGradGuard no_grad;
        module.w.copy_(full({2}, 2.0, {.device = device}));
      }
      check_close(module(sample).detach(), {2, 2}, 0.0);
      module.load_state_dict({{"w", full({2}, 5.0, {.device = device})}});
      check_close(module(sample).detach(), {5, 5}, 0.0);
    });
  }

  TEST_CASE("H2: with OnChange::regraph a change is recorded again") {
    for_each_device([](Device device) {
      const Tensor sample = ones({2}, {.device = device});
      Scale module(device);
      GraphedCallable graphed =
          make_graphed_callables(module, sample, {.on_change = OnChange::regraph});
      module.w.set_data(full({2}, 3.0, {.device = device}));
      check_close(module(sample).detach(), {3, 3}, 0.0);
      module(sample).sum().backward();
      check_close(module.w.grad(), {1, 1}, 0.0);
      CHECK(graphed.stats().captures == 2);
      module.w.set_requires_grad(false);
      CHECK_FALSE(module(sample).requires_grad());
      CHECK(graphed.stats().captures == 3);
      CHECK(graphed.stats().replays == 3);
    });
  }

  TEST_CASE("R9: in the other mode the module runs eagerly and is counted") {
    for_each_device([](Device device) {
      Net net(device);
      GraphedCallable graphed = make_graphed_callables(net.model, data({5, 6}, 1, device));
      const Tensor x = data({5, 6}, 2, device);
      (void)net.model(x);
      CHECK(graphed.stats().eager_calls == 0);
      net.model.eval();
      const Tensor y = net.model(x);
      CHECK(graphed.stats().eager_calls == 1);
      check_identical(net.model(x).detach(), y.detach());  // no dropout
      CHECK(net.model(data({9, 6}, 3, device)).shape() == Shape{9, 3});
      net.model.train();
      (void)net.model(x);
      CHECK(graphed.stats().eager_calls == 3);
      CHECK(graphed.stats().replays == 2);
      CHECK(graphed.stats().captures == 1);
    });
  }

  TEST_CASE("by option each mode has a graph of its own") {
    for_each_device([](Device device) {
      Net net(device);
      Net eager(device);
      GraphedCallable graphed =
          make_graphed_callables(net.model, data({5, 6}, 1, device), {.graph_each_mode = true});
      const Tensor x = data({5, 6}, 2, device);
      for (const bool training : {true, false, true, false}) {
        net.model.train(training);
        eager.model.train(training);
        check_identical(net.model(x).detach(), eager.model(x).detach());
      }
      CHECK(graphed.stats().captures == 2);
      CHECK(graphed.stats().replays == 4);
      CHECK(graphed.stats().eager_calls == 0);
    });
  }

  TEST_CASE("hooks are refused before graphing, run around the replay after it") {
    for_each_device([](Device device) {
      const Tensor x = data({5, 6}, 2, device);
      Net net(device);
      const auto child = net.model.named_children()[0].second;
      const int id = child->register_forward_hook(
          [](nn::Module&, const Tensor&, const Tensor& y) { return y; });
      CHECK_THROWS_WITH_AS(make_graphed_callables(net.model, x), Contains("module \"0\" has hooks"),
                           StateError);
      child->remove_hook(id);
      make_graphed_callables(net.model, x);
      int calls = 0;
      net.model.register_forward_hook([&](nn::Module&, const Tensor&, const Tensor& y) {
        ++calls;
        return y;
      });
      (void)net.model(x);
      CHECK(calls == 1);
      (void)child->register_forward_hook(
          [](nn::Module&, const Tensor&, const Tensor& y) { return y; });
      CHECK_THROWS_WITH_AS((void)net.model(x), Contains("a hook was registered on \"0\""),
                           StateError);
    });
  }

  TEST_CASE("trainable buffers, modules graphed twice and inner ones are refused") {
    for_each_device([](Device device) {
      const Tensor sample = ones({2}, {.device = device});
      Scale module(device);
      module.register_buffer("b", ones({2}, {.device = device})).set_requires_grad();
      CHECK_THROWS_WITH_AS(make_graphed_callables(module, sample),
                           Contains("buffer \"b\" requires a gradient; only parameters may"),
                           GradError);
      Net net(device);
      const Tensor x = data({5, 6}, 2, device);
      CHECK_THROWS_WITH_AS(
          make_graphed_callables({Graphable(net.model, x), Graphable(net.model, x)}),
          Contains("is in this call twice"), StateError);
      make_graphed_callables(net.model, x);
      CHECK_THROWS_WITH_AS(make_graphed_callables(net.model, x), Contains("is graphed already"),
                           StateError);
      ungraph(net.model);
      make_graphed_callables(net.model[0], x);
      CHECK_THROWS_WITH_AS(make_graphed_callables(net.model, x),
                           Contains("module \"0\" is graphed already"), StateError);
    });
  }

  TEST_CASE("a parameter that requires a gradient and gets none is refused unless allowed") {
    for_each_device([](Device device) {
      const Tensor sample = ones({2}, {.device = device});
      Scale module(device);
      module.register_parameter("idle", ones({2}, {.device = device}));
      CHECK_THROWS_WITH_AS(make_graphed_callables(module, sample),
                           Contains("parameter \"idle\" requires a gradient and has no influence"),
                           GradError);
      make_graphed_callables(module, sample, {.allow_unused_input = true});
      module(sample).sum().backward();
      check_close(module.w.grad(), {1, 1}, 0.0);
    });
  }

  TEST_CASE("ungraph gives the forward and the memory back; graphing again works") {
    for_each_device([](Device device) {
      Net net(device);
      const Tensor x = data({5, 6}, 2, device);
      net.model.eval();
      const Tensor want = net.model(x).detach();
      CHECK_THROWS_WITH_AS(ungraph(net.model), Contains("is not graphed"), StateError);
      (void)allocator(device).empty_cache();
      const std::int64_t before = allocator(device).stats().total.reserved_bytes;
      for (int round = 0; round < 3; ++round) {
        GraphedCallable graphed = make_graphed_callables(net.model, x);
        CHECK(net.model.is_forward_replaced());
        check_identical(net.model(x).detach(), want);
        ungraph(net.model);
        CHECK_FALSE(net.model.is_forward_replaced());
        CHECK_THROWS_AS((void)graphed(x), StateError);
        check_identical(net.model(x).detach(), want);
        (void)allocator(device).empty_cache();
        CHECK(allocator(device).stats().total.reserved_bytes == before);
      }
    });
  }

  TEST_CASE("a module may die graphed: the handle then says so") {
    for_each_device([](Device device) {
      auto module = std::make_unique<Scale>(device);
      const Tensor sample = ones({2}, {.device = device});
      GraphedCallable graphed = make_graphed_callables(*module, sample, {.name = "scale"});
      module.reset();
      CHECK_THROWS_WITH_AS((void)graphed(sample), Contains("scale: it was reset"), StateError);
    });
  }

  TEST_CASE("part of a network, in two graphed pieces of one call") {
    for_each_device([](Device device) {
      Generator init(3, device);
      const nn::LinearOptions options{.device = device, .generator = &init};
      nn::Linear first(4, 8, options);
      nn::Linear middle(8, 8, options);
      nn::Linear last(8, 2, options);
      const Tensor t = data({3, 2}, 9, device);
      const auto loss_of = [&](const Tensor& x) {
        return mse_loss(last(tanh(middle(relu(first(x))))), t);
      };
      const Tensor x = data({3, 4}, 1, device);
      const auto gradients = [&] {
        std::vector<Tensor> all;
        for (const nn::Linear* layer : {&first, &middle, &last}) {
          for (const Tensor& parameter : layer->parameters()) {
            all.push_back(parameter.grad());
            parameter.set_grad(Tensor());
          }
        }
        return all;
      };
      const Tensor want = loss_of(x);
      want.backward();
      const std::vector<Tensor> eager = gradients();
      make_graphed_callables(
          {Graphable(first, data({3, 4}, 2, device)), Graphable(last, leaf({3, 8}, 3, device))});
      for (int i = 0; i < 2; ++i) {
        const Tensor loss = loss_of(x);
        loss.backward();
        check_identical(loss.detach(), want.detach());
        const std::vector<Tensor> replayed = gradients();
        for (std::size_t k = 0; k < eager.size(); ++k) check_identical(replayed[k], eager[k]);
      }
    });
  }

  TEST_CASE("A8: a member that forward sets keeps the memory of the recording") {
    for_each_device([](Device device) {
      class Keeps : public nn::Module {
       public:
        Tensor forward(const Tensor& x) override {
          kept = x * 2.0;
          return kept + 1.0;
        }
        Tensor kept;
      };
      Keeps module;
      make_graphed_callables(module, ones({2}, {.device = device}));
      const Tensor recorded = module.kept;
      CHECK_THROWS_WITH_AS((void)recorded.to_vector<float>(), Contains("was never replayed"),
                           StateError);
      module.kept = full({2}, 100.0, {.device = device});
      (void)module(full({2}, 3.0, {.device = device}));
      check_close(recorded, {6, 6}, 0.0);
      check_close(module.kept, {100, 100}, 0.0);
    });
  }
}

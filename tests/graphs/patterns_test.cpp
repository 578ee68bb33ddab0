// The usage patterns of docs/graphs.md. What lies between "// [name]" and "// [end]" stands there
// word for word; tests/check_snippets.py compares them.

#include <doctest/doctest.h>

#include <map>
#include <vector>

#include "capstan.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;

namespace {

constexpr std::int64_t kBatch = 8;

struct Training {
  explicit Training(Device place)
      : device(place),
        generator(3, place),
        first(6, 16, {.device = place, .generator = &generator}),
        head(16, 3, {.device = place, .generator = &generator}),
        gate(16, 16, {.device = place, .generator = &generator}) {}

  [[nodiscard]] Tensor images(std::uint64_t seed) const {
    return random_tensor({kBatch, 6}, seed, DType::float32, device);
  }
  [[nodiscard]] Tensor targets(std::uint64_t seed) const {
    return random_tensor({kBatch, 3}, seed, DType::float32, device);
  }
  [[nodiscard]] std::vector<Tensor> parameters() const {
    std::vector<Tensor> all = first.parameters();
    for (const nn::Linear* layer : {&head, &gate}) {
      for (const Tensor& parameter : layer->parameters()) all.push_back(parameter);
    }
    return all;
  }
  // The eager step that the patterns are compared with.
  Tensor step(nn::Optimizer& optimizer, const Tensor& x, const Tensor& t) {
    optimizer.zero_grad();
    const Tensor loss = mse_loss(head(relu(first(x))), t);
    loss.backward();
    optimizer.step();
    return loss.detach();
  }

  Device device;
  Generator generator;
  nn::Linear first;
  nn::Linear head;
  nn::Linear gate;
};

std::vector<Tensor> used(const Training& training) {
  std::vector<Tensor> all = training.first.parameters();
  for (const Tensor& parameter : training.head.parameters()) all.push_back(parameter);
  return all;
}

void check_same_weights(const Training& got, const Training& want) {
  const std::vector<Tensor> a = got.parameters();
  const std::vector<Tensor> b = want.parameters();
  for (std::size_t i = 0; i < a.size(); ++i) check_identical(a[i].detach(), b[i].detach());
}

}  // namespace

TEST_SUITE("graphs/patterns") {
  TEST_CASE("whole network, captured by hand") {
    for_each_device([](Device device) {
      Training eager(device);
      nn::SGD eager_optimizer(used(eager), {.learning_rate = 0.1, .momentum = 0.9});
      Training training(device);
      nn::Sequential model(std::move(training.first), nn::ReLU(), std::move(training.head));
      nn::SGD optimizer(model.parameters(), {.learning_rate = 0.1, .momentum = 0.9});

      // [whole network]
      Tensor x = zeros({kBatch, 6}, {.device = device});  // static inputs
      Tensor t = zeros({kBatch, 3}, {.device = device});
      Tensor loss;
      optimizer.zero_grad();  // so that the gradients are made in the graph's pool

      Graph graph(device);
      capture(graph, [&] {
        loss = mse_loss(model(x), t);
        loss.backward();
        optimizer.step();
      });
      auto step = [&](const Tensor& images, const Tensor& targets) {
        x.copy_(images);
        t.copy_(targets);
        graph.replay();  // updates weights, gradients, optimiser state and `loss` in place
      };
      // [end]

      for (std::uint64_t i = 0; i < 5; ++i) {
        const Tensor want = eager.step(eager_optimizer, eager.images(i), eager.targets(100 + i));
        step(eager.images(i), eager.targets(100 + i));
        check_identical(loss.detach(), want);
      }
    });
  }

  TEST_CASE("whole network in mixed precision") {
    for_each_device([](Device device) {
      Training eager(device);
      nn::Sequential twin(std::move(eager.first), nn::ReLU(), std::move(eager.head));
      nn::SGD eager_optimizer(twin.parameters(), {.learning_rate = 0.1});
      Training training(device);
      nn::Sequential model(std::move(training.first), nn::ReLU(), std::move(training.head));
      nn::SGD optimizer(model.parameters(), {.learning_rate = 0.1});

      // [mixed precision]
      CapturedStep step(device, [&](const Tensor& images, const Tensor& targets) {
        optimizer.zero_grad();
        Tensor loss;
        {
          Autocast autocast(device.type, {.dtype = DType::bfloat16});
          loss = mse_loss(model(images), targets);
        }
        loss.backward();  // in the dtypes that forward chose
        optimizer.step();
        return loss;
      });
      // [end]

      for (std::uint64_t i = 0; i < 4; ++i) {
        const Tensor x = eager.images(i);
        const Tensor t = eager.targets(100 + i);
        eager_optimizer.zero_grad();
        Tensor want;
        {
          const Autocast autocast(device.type, {.dtype = DType::bfloat16});
          want = mse_loss(twin(x), t);
        }
        want.backward();
        eager_optimizer.step();
        check_identical(step(x, t), want.detach());
      }
    });
  }

  TEST_CASE("partial network: a branch on the host between graphed parts") {
    for_each_device([](Device device) {
      Training eager(device);
      Training training(device);
      nn::SGD eager_optimizer(eager.parameters(), {.learning_rate = 0.1});
      nn::SGD optimizer(training.parameters(), {.learning_rate = 0.1});
      nn::Linear& first = training.first;
      nn::Linear& gate = training.gate;
      nn::Linear& head = training.head;

      // [partial network]
      Tensor images = zeros({kBatch, 6}, {.device = device});
      Tensor hidden = zeros({kBatch, 16}, {.device = device}).set_requires_grad();
      make_graphed_callables({Graphable(first, images),  // samples: shape, dtype, requires_grad
                              Graphable(gate, hidden),   // of what the calls will bring
                              Graphable(head, hidden)});

      auto forward = [&](const Tensor& x) {
        Tensor h = relu(first(x));                      // replays
        if (h.mean().item() > 0.25) h = tanh(gate(h));  // decided on the host, for each batch
        return head(h);                                 // replays
      };
      // [end]

      int gated = 0;
      for (std::uint64_t i = 0; i < 6; ++i) {
        const Tensor x = eager.images(i) * (i % 2 == 0 ? 1.0 : 4.0);
        const Tensor t = eager.targets(100 + i);
        eager_optimizer.zero_grad();
        Tensor h = relu(eager.first(x));
        if (h.mean().item() > 0.25) {
          h = tanh(eager.gate(h));
          ++gated;
        }
        const Tensor want = mse_loss(eager.head(h), t);
        want.backward();
        eager_optimizer.step();

        optimizer.zero_grad();
        const Tensor loss = mse_loss(forward(x), t);
        loss.backward();
        optimizer.step();
        check_identical(loss.detach(), want.detach());
      }
      CHECK(gated > 0);
      CHECK(gated < 6);
      check_same_weights(training, eager);
    });
  }

  TEST_CASE("several streams in one capture") {
    for_each_device([](Device device) {
      const Tensor x = full({64}, 3.0, {.device = device});
      const Stream side = Stream::create(device);
      Graph graph(device);
      Tensor u;
      Tensor v;
      Tensor w;
      // [several streams]
      capture(graph, [&] {
        Stream origin = current_stream(device);
        side.wait_stream(origin);  // fork
        {
          StreamGuard guard(side);
          v = x * 2.0;
        }
        u = x + 1.0;
        origin.wait_stream(side);  // join
        w = u + v;
      });
      // [end]
      graph.replay();
      check_close(w, std::vector<double>(64, 10.0), 0.0);
    });
  }

  TEST_CASE("graphs that share memory: one for each batch size, the largest first") {
    for_each_device([](Device device) {
      Training training(device);
      nn::Linear& model = training.first;
      const NoGradGuard no_grad;
      // [shared pools]
      GraphPool pool = graph_pool_handle(device, "batch sizes");
      std::map<std::int64_t, Tensor> inputs;
      std::map<std::int64_t, Tensor> outputs;
      std::map<std::int64_t, Graph> graphs;
      for (std::int64_t size : {64, 16, 4}) {
        inputs[size] = zeros({size, 6}, {.device = device});
        Graph& graph = graphs.try_emplace(size, device).first->second;
        capture(graph, [&] { outputs[size] = tanh(model(inputs[size])); }, {.pool = pool});
      }
      auto run = [&](const Tensor& x) {
        inputs[x.size(0)].copy_(x);
        graphs.at(x.size(0)).replay();
        return outputs[x.size(0)].clone();  // before another graph of the pool replays
      };
      // [end]
      for (const std::int64_t size : {4, 64, 16, 4}) {
        const Tensor x = random_tensor({size, 6}, 7, DType::float32, device);
        check_identical(run(x), tanh(model(x)));
      }
    });
  }
}

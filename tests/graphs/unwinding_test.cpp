#include <doctest/doctest.h>

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "autograd/arithmetic.h"
#include "autograd/grad_mode.h"
#include "autograd/layout.h"
#include "autograd/loss.h"
#include "framework/random/generator.h"
#include "framework/runtime/capture_probe.h"
#include "graphs/capture_scope.h"
#include "graphs/captured_step.h"
#include "nn/activations.h"
#include "nn/container.h"
#include "nn/linear.h"
#include "nn/optim/sgd.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;
using detail::CapturePoint;
using doctest::Contains;

namespace {

constexpr std::int64_t kFeatures = 6;
constexpr std::int64_t kClasses = 4;

struct Injected : std::runtime_error {
  Injected() : std::runtime_error("injected") {}
};

// Points passed on this thread since `failing` was made, and which of them fails.
constinit thread_local std::int64_t passed = 0;
constinit thread_local std::int64_t failing_point = 0;

/// While it lives, the `point`-th point of a capture throws; none for 0.
class Failing {
 public:
  explicit Failing(std::int64_t point) {
    passed = 0;
    failing_point = point;
    detail::capture_probe = [](CapturePoint) {
      if (++passed == failing_point) throw Injected();
    };
  }
  ~Failing() { detail::capture_probe = nullptr; }
  Failing(const Failing&) = delete;
  Failing& operator=(const Failing&) = delete;

  [[nodiscard]] std::int64_t points() const noexcept { return passed; }
};

/// A classifier with dropout, its optimiser with momentum, and a batch.
struct Training {
  explicit Training(Device place)
      : device(place),
        generator(11, device),
        net(nn::Linear(kFeatures, 8, {.device = device, .generator = &generator}), nn::ReLU(),
            nn::Dropout(0.25, &generator),
            nn::Linear(8, kClasses, {.device = device, .generator = &generator})),
        sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9}),
        x(random_tensor({5, kFeatures}, 1, DType::float32, device)),
        y(Tensor::from_vector<std::int64_t>({5}, {0, 1, 2, 3, 0}, device)) {}

  Tensor step(const Tensor& images, const Tensor& labels) {
    sgd.zero_grad();
    const Tensor loss = cross_entropy(net(images), labels);
    loss.backward();
    sgd.step();
    return loss.detach();
  }

  Device device;
  Generator generator;
  nn::Sequential net;
  nn::SGD sgd;
  Tensor x;
  Tensor y;
};

/// What must be after a failed capture as it was before.
struct Snapshot {
  explicit Snapshot(Training& training)
      : stream(current_stream(training.device)),
        grad_mode(grad_enabled()),
        generator(training.generator.state()),
        common_generator(default_generator(training.device).state()) {
    for (const Tensor& parameter : training.net.parameters()) grads.push_back(parameter.grad());
    (void)allocator(training.device).empty_cache();
    memory = allocator(training.device).stats();
  }

  Stream stream;
  bool grad_mode;
  GeneratorState generator;
  GeneratorState common_generator;
  std::vector<Tensor> grads;
  AllocatorStats memory;
};

bool same(const Snapshot& a, const Snapshot& b) {
  bool grads = a.grads.size() == b.grads.size();
  for (std::size_t i = 0; grads && i < a.grads.size(); ++i) {
    grads = a.grads[i].defined() ? a.grads[i].is_same(b.grads[i]) : !b.grads[i].defined();
  }
  const PoolStats& left = a.memory.total;
  const PoolStats& right = b.memory.total;
  return grads && a.stream == b.stream && a.grad_mode == b.grad_mode &&
         a.generator == b.generator && a.common_generator == b.common_generator &&
         left.allocated_bytes == right.allocated_bytes &&
         left.requested_bytes == right.requested_bytes &&
         left.reserved_bytes == right.reserved_bytes && left.blocks == right.blocks &&
         left.segments == right.segments && a.memory.pools.size() == b.memory.pools.size();
}

bool is_idle(Device device) {
  return detail::active_captures() == 0 && !is_current_stream_capturing(device) &&
         WriteJournal::current() == nullptr && detail::call_context.where.line() == 0 &&
         detail::call_context.module == nullptr;
}

std::vector<Tensor> copies(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors) result.push_back(tensor.detach().clone());
  return result;
}

/// Fails `attempt` at every point in turn, `rounds` times, and looks at what is left each time.
void fail_everywhere(Training& training, const std::function<void()>& attempt, std::int64_t points,
                     int rounds) {
  const auto fail = [&](std::int64_t point) {
    const Failing failing(point);
    CHECK_THROWS_AS(attempt(), Injected);
  };
  for (std::int64_t point = 1; point <= points; ++point)
    fail(point);  // what stays, stays from here
  const Snapshot before(training);
  for (int round = 0; round < rounds; ++round) {
    for (std::int64_t point = 1; point <= points; ++point) {
      fail(point);
      REQUIRE(is_idle(training.device));
    }
    REQUIRE(same(Snapshot(training), before));
  }
  for (std::int64_t point = 1; point <= points; ++point) {
    CAPTURE(point);
    fail(point);
    REQUIRE(same(Snapshot(training), before));
  }
}

}  // namespace

TEST_SUITE("graphs/unwinding") {
  TEST_CASE("F1: a training step whose first call fails, at any point, leaves no trace") {
    for_each_device([](Device device) {
      Training eager(device);
      Training training(device);
      const std::vector<Tensor> start = copies(training.net.parameters());
      CapturedStep step(device,
                        [&](const Tensor& x, const Tensor& y) { return training.step(x, y); }, {});
      std::int64_t points = 0;
      {
        Training other(device);
        CapturedStep whole(device,
                           [&](const Tensor& x, const Tensor& y) { return other.step(x, y); });
        const Failing none(0);
        (void)whole(other.x, other.y);
        points = none.points();
      }
      CHECK(points > 30);
      fail_everywhere(
          training, [&] { (void)step(training.x, training.y); }, points, 100);
      for (std::size_t i = 0; i < start.size(); ++i) {
        check_identical(training.net.parameters()[i].detach(), start[i]);
      }
      for (int i = 0; i < 3; ++i) {
        check_identical(step(training.x, training.y), eager.step(eager.x, eager.y));
      }
      CHECK(training.generator.state() == eager.generator.state());
    });
  }

  TEST_CASE("F1: a capture of a training step by hand, failing at any point, leaves no trace") {
    for_each_device([](Device device) {
      Training eager(device);
      Training training(device);
      (void)eager.step(eager.x, eager.y);
      (void)training.step(training.x, training.y);  // so that there are gradients to come back to
      const std::vector<Tensor> start = copies(training.net.parameters());
      std::optional<Graph> graph;
      Tensor loss;
      const auto attempt = [&] {
        graph.emplace(device);
        Tensor made;
        capture(*graph, [&] { made = training.step(training.x, training.y); });
        loss = made;
      };
      std::int64_t points = 0;
      {
        Training other(device);
        Graph whole(device);
        const Failing none(0);
        capture(whole, [&] { (void)other.step(other.x, other.y); });
        points = none.points();
      }
      CHECK(points > 15);
      fail_everywhere(training, attempt, points, 100);
      for (std::size_t i = 0; i < start.size(); ++i) {
        check_identical(training.net.parameters()[i].detach(), start[i]);
      }
      attempt();
      for (int i = 0; i < 3; ++i) {
        graph->replay();
        check_identical(loss, eager.step(eager.x, eager.y));
      }
    });
  }

  TEST_CASE("K1: the body's error comes out, and the graph tells what was wrong besides") {
    for_each_device([](Device device) {
      const Stream before = current_stream(device);
      const Stream forked = Stream::create(device);
      const Tensor x = zeros({2}, {.device = device});
      Graph graph(device, {.name = "g"});
      const auto body = [&] {
        x.add_(1.0);
        forked.wait_stream(current_stream(device));
        const StreamGuard guard(forked);
        x.mul_(2.0);
        throw std::runtime_error("user 42");
      };
      CHECK_THROWS_WITH_AS(capture(graph, body), "user 42", std::runtime_error);
      CAPTURE(graph.last_failure());
      const std::string fault =
          detail::concat("abandoned after 2 operations; forked streams were not joined: stream ",
                         forked.id(), " (last operation: mul");
      CHECK(graph.last_failure().find(fault) == 0);
      CHECK_THROWS_WITH_AS(graph.replay(), Contains(fault.c_str()), StateError);
      CHECK(is_idle(device));
      CHECK(current_stream(device) == before);
      CHECK_FALSE(forked.is_capturing());
      capture(graph, [&] { x.add_(1.0); });
      CHECK(graph.last_failure() == "");
      graph.replay();
      check_close(x, {1, 1}, 0.0);
    });
  }

  TEST_CASE("K1: an error in begin, end or instantiate restores everything") {
    for_each_device([](Device device) {
      const Stream before = current_stream(device);
      const Tensor x = zeros({2}, {.device = device});
      for (const std::int64_t point : {1, 3, 4}) {
        CAPTURE(point);
        Graph graph(device);
        {
          const Failing failing(point);
          CHECK_THROWS_AS(capture(graph, [&] { x.add_(1.0); }), Injected);
          CHECK(failing.points() == point);
        }
        CHECK(is_idle(device));
        CHECK(current_stream(device) == before);
        CHECK(allocator(device).stats().pools.size() == 1);
        CHECK_FALSE(graph.is_ready());
        capture(graph, [&] { x.add_(1.0); });
        graph.replay();
      }
      check_close(x, {3, 3}, 0.0);
    });
  }

  TEST_CASE("an instantiation that fails keeps the template and the old executable") {
    for_each_device([](Device device) {
      const Tensor x = zeros({2}, {.device = device});
      Graph graph(device, {.keep_graph = true});
      capture(graph, [&] { x.add_(1.0); });
      const auto fail = [&] {
        const Failing failing(1);
        CHECK_THROWS_AS(graph.instantiate(), Injected);
      };
      fail();
      CHECK_FALSE(graph.is_ready());
      graph.instantiate();
      fail();
      graph.replay();
      check_close(x, {1, 1}, 0.0);
    });
  }

  TEST_CASE("F1: guards of the body and nested modules are unwound with it") {
    for_each_device([](Device device) {
      const Tensor x = ones({2}, {.device = device}).set_requires_grad();
      const Tensor other = ones({2}, {.device = device});
      const std::string name = "net";
      x.set_grad(ones({2}, {.device = device}));
      const Tensor grad = x.grad();
      const std::uint64_t storage = x.storage()->serial();
      Graph graph(device);
      CHECK_THROWS_AS(capture(graph,
                              [&] {
                                const ModuleScope scope(name);
                                const NoGradGuard no_grad;
                                const StreamGuard stream(Stream::create(device));
                                x.set_grad(Tensor());
                                x.set_data(other);
                                throw Injected();
                              }),
                      Injected);
      CHECK(is_idle(device));
      CHECK(grad_enabled());
      CHECK(x.grad().is_same(grad));
      CHECK(x.storage()->serial() == storage);
    });
  }

  TEST_CASE("after a capture that succeeds, gradients are those of the capture") {
    for_each_device([](Device device) {
      const Tensor x = full({2}, 3.0, {.device = device}).set_requires_grad();
      Graph graph(device);
      capture(graph, [&] { (x * x).sum().backward(); });
      graph.replay();
      check_close(x.grad(), {6, 6}, 0.0);
    });
  }
}

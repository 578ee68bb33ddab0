// Several devices, pools and streams around a graph, on emulated devices.

#include <set>
#include <string>
#include <vector>

#include "autograd/arithmetic.h"
#include "autograd/loss.h"
#include "framework/memory/caching_allocator.h"
#include "framework/runtime/dispatch.h"
#include "framework/runtime/emulated_cpu.h"
#include "framework/tensor/factory.h"
#include "graphs/capture_scope.h"
#include "graphs/captured_step.h"
#include "nn/activations.h"
#include "nn/container.h"
#include "nn/linear.h"
#include "nn/optim/adam.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;
using doctest::Contains;

namespace {

const Device kFirst = Device::cpu(1);
const Device kSecond = Device::cpu(2);

// Two graphs of one pool: y1 = x + 1 and y2 = x * 10.
struct TwoGraphs {
  TwoGraphs() {
    const GraphPool pool = graph_pool_handle(kFirst);
    capture(g1, [&] { y1 = x + 1.0; }, {.pool = pool});
    capture(g2, [&] { y2 = x * 10.0; }, {.pool = pool});
  }
  void run(int number) {
    Graph& graph = number == 1 ? g1 : g2;
    graph.replay();
    check_close(number == 1 ? y1 : y2, {number == 1 ? 4.0 : 30.0}, 0.0);
  }

  Tensor x = full({1}, 3.0, {.device = kFirst});
  Tensor y1;
  Tensor y2;
  Graph g1{kFirst, {.name = "g1"}};
  Graph g2{kFirst, {.name = "g2"}};
};

struct Entry {
  std::string* log;
  char letter;
};

void append(std::string& log, char letter) {
  dispatch<Entry>(kFirst, [](const Entry& entry) { entry.log->push_back(entry.letter); }, nullptr,
                  {&log, letter});
}

}  // namespace

TEST_SUITE("graphs/devices") {
  TEST_CASE("J5: an operation on another device than the capture's is refused, naming both") {
    const Emulated emulated({.seed = test_seed()});
    const Tensor here = ones({2}, {.device = kFirst});
    const Tensor there = ones({2}, {.device = kSecond});
    Graph graph(kFirst);
    capture(graph,
            [&] {
              here.add_(1.0);
              CHECK_THROWS_WITH_AS(there.add_(1.0),
                                   Contains("add: device cpu:2 inside capture on device cpu:1"),
                                   CaptureError);
              CHECK_THROWS_WITH_AS((void)here.to(kSecond),
                                   Contains("copy: device cpu:2 inside capture on device cpu:1"),
                                   CaptureError);
              CHECK(ones({2}).sum().item() == 2.0);  // the host's own work
              const StreamGuard aside(default_stream(kFirst));
              CHECK_NOTHROW(there.mul_(1.0));  // no longer inside
            },
            {.error_mode = CaptureErrorMode::relaxed});
    CHECK(graph.recording().operations.size() == 1);
    graph.replay();
    check_close(here, {2, 2}, 0.0);
    check_close(there, {1, 1}, 0.0);

    Graph on_host;
    capture(on_host, [&] {
      CHECK_THROWS_WITH_AS(there.add_(1.0),
                           Contains("add: device cpu:2 inside capture on device cpu;"),
                           CaptureError);
    });
    CHECK(detail::capture_stream(kSecond).device() == kSecond);
  }

  TEST_CASE("J5: a stream of another kind of device cannot join a capture") {
    const Emulated emulated({.seed = test_seed()});
    const Stream host = Stream::create(Device::cpu());
    Graph graph(kFirst);
    capture(graph, [&] {
      CHECK_THROWS_WITH_AS(host.wait_stream(current_stream(kFirst)),
                           Contains("cannot take part in a capture on cpu:1"), CaptureError);
      CHECK_FALSE(host.is_capturing());
    });
  }

  TEST_CASE("J5: a strict capture that is empty fails, and the next one works") {
    for_each_device([](Device device) {
      Graph graph(device, {.name = "idle"});
      CHECK_THROWS_WITH_AS(capture(graph, [] {}, {.refuse_empty = true}),
                           Contains("capture_end: graph \"idle\" captured no operation on"),
                           CaptureError);
      CHECK_FALSE(graph.is_ready());
      const Tensor x = zeros({1}, {.device = device});
      CHECK_NOTHROW(capture(graph, [&] { x.add_(1.0); }, {.refuse_empty = true}));
      graph.replay();
      CHECK(x.item() == 1.0);
    });
  }

  TEST_CASE("I3: graphs of one pool may run in any order if each result is used at once") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const Emulated emulated({.seed = seed});
      TwoGraphs graphs;
      for (const int number : {1, 2, 2, 1, 2, 2, 1}) graphs.run(number);
    }
  }

  TEST_CASE("I3: replays of one pool on two streams follow one another") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const Emulated emulated({.seed = seed});
      TwoGraphs graphs;
      const Stream a = Stream::create(kFirst);
      const Stream b = Stream::create(kFirst);
      a.wait_stream(current_stream(kFirst));
      {
        const StreamGuard guard(a);
        graphs.g1.replay();
      }
      const StreamGuard guard(b);
      graphs.g2.replay();
      check_close(graphs.y2, {30}, 0.0);
    }
  }

  TEST_CASE("I3: a result of a replay consumed on another stream without a wait is reported") {
    const CpuEmulation emulation({.seed = test_seed()});
    TwoGraphs graphs;
    const Stream s = Stream::create(kFirst);
    const Stream t = Stream::create(kFirst);
    s.wait_stream(current_stream(kFirst));
    const auto consume = [&] {
      {
        const StreamGuard guard(s);
        graphs.g1.replay();
      }
      const StreamGuard guard(t);
      (void)(graphs.y1 * 2.0);
      return CpuEmulation::take_reports();
    };
    const std::vector<std::string> reports = consume();
    REQUIRE(reports.size() == 1);
    CHECK(reports[0].find(detail::concat("add (replay of \"g1\") of stream ", s.id())) == 0);
    CHECK(reports[0].find(detail::concat("stream ", t.id(), " must wait for stream ", s.id())) !=
          std::string::npos);
    t.wait_stream(s);
    s.wait_stream(t);
    CHECK(consume().size() == 1);
  }

  TEST_CASE("branches of a replay interleave, and its recorded order holds") {
    std::set<std::string> orders;
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
      const Emulated emulated({.seed = seed});
      std::string log;
      const Stream side = Stream::create(kFirst);
      Graph graph(kFirst);
      capture(graph, [&] {
        const Stream origin = current_stream(kFirst);
        append(log, 'f');
        side.wait_stream(origin);
        append(log, '1');
        append(log, '2');
        {
          const StreamGuard guard(side);
          append(log, 'x');
          append(log, 'y');
        }
        origin.wait_stream(side);
        append(log, 'j');
      });
      graph.replay();
      synchronize(kFirst);
      CAPTURE(log);
      REQUIRE(log.size() == 6);
      CHECK(log.front() == 'f');
      CHECK(log.back() == 'j');
      CHECK(log.find('1') < log.find('2'));
      CHECK(log.find('x') < log.find('y'));
      orders.insert(log);
    }
    CHECK(orders.size() == 6);
  }

  TEST_CASE("a training step is the same eagerly, replayed, and in any order of the work") {
    std::vector<std::vector<double>> results;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      const Emulated emulated({.seed = seed});
      Generator generator(5, kFirst);
      nn::Sequential net(nn::Linear(6, 8, {.device = kFirst, .generator = &generator}), nn::ReLU(),
                         nn::Dropout(0.25, &generator),
                         nn::Linear(8, 4, {.device = kFirst, .generator = &generator}));
      nn::Adam adam(net.parameters(), {.learning_rate = 0.01});
      const auto run = [&](const Tensor& x, const Tensor& y) {
        adam.zero_grad();
        const Tensor loss = cross_entropy(net(x), y);
        loss.backward();
        adam.step();
        return loss.detach();
      };
      CapturedStep step(kFirst, run);
      const Tensor x = random_tensor({5, 6}, 1, DType::float32, kFirst);
      const Tensor y = Tensor::from_vector<std::int64_t>({5}, {0, 1, 2, 3, 0}, kFirst);
      for (int i = 0; i < 5; ++i) (void)(seed % 2 == 0 ? step(x, y) : run(x, y));
      results.push_back(net.parameters().front().to_vector<double>());
    }
    for (const std::vector<double>& result : results) CHECK(result == results.front());
  }

  TEST_CASE("copies between devices are ordered on both, in whatever order the work runs") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
      const Emulated emulated({.seed = seed});
      const Stream from = Stream::create(kFirst);
      const Stream to = Stream::create(kSecond);
      const StreamGuard from_guard(from);
      const StreamGuard to_guard(to);
      const Tensor x = full({1000}, 1.0, {.device = kFirst});
      x.add_(1.0);
      Tensor y = x.to(kSecond);
      x.fill_(9.0);  // after the copy
      y.mul_(2.0);   // likewise
      const Tensor z = y.to(kFirst);
      y = Tensor();
      CHECK(z.sum().item() == 4000.0);
      CHECK(x.sum().item() == 9000.0);
    }
  }
}

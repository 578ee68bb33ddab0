#include <functional>
#include <string>
#include <vector>

#include "autograd/arithmetic.h"
#include "autograd/grad_mode.h"
#include "autograd/linalg.h"
#include "autograd/loss.h"
#include "autograd/math.h"
#include "framework/runtime/event.h"
#include "framework/runtime/order_check.h"
#include "framework/tensor/factory.h"
#include "graphs/capture_scope.h"
#include "graphs/graph.h"
#include "nn/container.h"
#include "nn/linear.h"
#include "nn/optim/sgd.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;
using doctest::Contains;

namespace {

// Three streams of a capture, all forked at its beginning and joined at its end, and some tensors.
struct Scene {
  explicit Scene(Device place)
      : device(place), a(Stream::create(place)), b(Stream::create(place)) {}

  void on(const Stream& stream, const std::function<void()>& body) const {
    const StreamGuard guard(stream);
    body();
  }
  void wait(const Stream& stream, const Stream& other) const {
    if (with_waits) stream.wait_stream(other);
  }

  Device device;
  Stream a;
  Stream b;
  bool with_waits = true;
  Tensor x = random_tensor({4, 4}, 1, DType::float32, device);
  Tensor y = random_tensor({4, 4}, 2, DType::float32, device);
  Tensor z = random_tensor({4, 4}, 3, DType::float32, device);
  Tensor w = random_tensor({4, 4}, 4, DType::float32, device).set_requires_grad();
  std::vector<Tensor> kept;  // results of the capture
};

void record(Scene& scene, const std::function<void(Scene&, const Stream&)>& body,
            CaptureOptions options = {}) {
  Graph graph(scene.device);
  capture(
      graph,
      [&] {
        const Stream origin = current_stream(scene.device);
        scene.a.wait_stream(origin);
        scene.b.wait_stream(origin);
        body(scene, origin);
        origin.wait_stream(scene.a);
        origin.wait_stream(scene.b);
      },
      std::move(options));
  graph.replay();
  synchronize(scene.device);
  scene.kept.clear();
}

struct Race {
  const char* kind;
  const char* first;  // operations that the error names
  const char* second;
  std::function<void(Scene&, const Stream&)> body;
};

// `wait` is what the racing form of each leaves out.
const std::vector<Race>& races() {
  static const std::vector<Race> all{
      {"read after write", "add", "mul",
       [](Scene& s, const Stream& o) {
         s.on(s.a, [&] { s.x.add_(1.0); });
         s.wait(o, s.a);
         s.kept.push_back(s.x * 2.0);
       }},
      {"write after read", "mul", "add",
       [](Scene& s, const Stream& o) {
         s.on(s.a, [&] { s.kept.push_back(s.x * 2.0); });
         s.wait(o, s.a);
         s.x.add_(1.0);
       }},
      {"write after write", "fill", "add",
       [](Scene& s, const Stream& o) {
         s.on(s.a, [&] { s.x.fill_(1.0); });
         s.wait(o, s.a);
         s.x.add_(1.0);
       }},
      {"forked too early", "add", "mul",
       [](Scene& s, const Stream& o) {
         s.x.add_(1.0);
         s.wait(s.a, o);
         s.on(s.a, [&] { s.kept.push_back(s.x * 2.0); });
       }},
      {"joined too early", "add", "mul",
       [](Scene& s, const Stream& o) {
         s.on(s.a, [&] { s.y.add_(1.0); });
         o.wait_stream(s.a);
         s.on(s.a, [&] { s.x.add_(1.0); });
         s.wait(o, s.a);
         s.kept.push_back(s.x * 2.0);
       }},
      {"waits for another stream", "add", "mul",
       [](Scene& s, const Stream& o) {
         s.on(s.a, [&] { s.x.add_(1.0); });
         s.on(s.b, [&] { s.y.add_(1.0); });
         o.wait_stream(s.b);
         s.wait(o, s.a);
         s.kept.push_back(s.x * 2.0);
       }},
      {"event recorded too early", "add", "mul",
       [](Scene& s, const Stream& o) {
         Event early = s.a.record_event();
         s.on(s.a, [&] { s.x.add_(1.0); });
         if (s.with_waits) early.record(s.a);
         o.wait_event(early);
         s.kept.push_back(s.x * 2.0);
       }},
      {"the same memory under another owner", "add", "mul",
       [](Scene& s, const Stream&) {
         const Tensor other = from_blob(s.y.raw_data(), s.y.shape(), {.device = s.device});
         s.on(s.b, [&] { s.kept.push_back(s.y + 1.0); });
         s.wait(s.a, s.b);
         s.on(s.a, [&] { other.mul_(1.0); });
       }},
      {"rows in common", "add", "mul",
       [](Scene& s, const Stream& o) {
         s.on(s.a, [&] { s.x.slice(0, 0, 2).add_(1.0); });
         s.wait(o, s.a);
         s.x.slice(0, 1, 3).mul_(2.0);
       }},
      {"a column and a row that cross", "add", "mul",
       [](Scene& s, const Stream& o) {
         s.on(s.a, [&] { s.x.slice(1, 1, 2).add_(1.0); });
         s.wait(o, s.a);
         s.x.slice(0, 2, 3).mul_(2.0);
       }},
      {"a transposed view", "add", "mul",
       [](Scene& s, const Stream& o) {
         s.on(s.a, [&] { s.x.t().slice(0, 0, 1).add_(1.0); });
         s.wait(o, s.a);
         s.x.slice(1, 0, 1).mul_(2.0);
       }},
      {"a stretched view", "add", "fill",
       [](Scene& s, const Stream& o) {
         s.on(s.a, [&] { s.kept.push_back(s.y + s.x.slice(0, 0, 1).expand({4, 4})); });
         s.wait(o, s.a);
         s.x.slice(0, 0, 1).fill_(0.0);
       }},
      {"update before backward", "", "sub",
       [](Scene& s, const Stream& o) {
         s.w.set_grad(Tensor());
         (s.x * s.w).sum().backward();
         s.wait(s.a, o);
         const NoGradGuard no_grad;
         s.on(s.a, [&] { s.w.sub_(s.w.grad()); });
       }},
      {"half of a chain over a third stream", "add", "mul",
       [](Scene& s, const Stream& o) {
         s.on(s.a, [&] { s.x.add_(1.0); });
         s.wait(s.b, s.a);
         s.on(s.b, [&] { s.y.add_(1.0); });
         o.wait_stream(s.b);
         s.kept.push_back(s.x * 2.0);
       }},
      {"one of two branches joined", "fill", "sum",
       [](Scene& s, const Stream& o) {
         s.on(s.a, [&] { s.x.slice(0, 0, 2).fill_(1.0); });
         s.on(s.b, [&] { s.x.slice(0, 2, 4).fill_(2.0); });
         o.wait_stream(s.a);
         s.wait(o, s.b);
         s.kept.push_back(s.x.sum());
       }},
      {"copy into what is still read", "mul", "copy",
       [](Scene& s, const Stream& o) {
         s.on(s.a, [&] { s.kept.push_back(s.x * s.y); });
         s.wait(o, s.a);
         s.y.copy_(s.z);
       }},
      {"product of what is still written", "add", "matmul",
       [](Scene& s, const Stream& o) {
         s.on(s.a, [&] { s.y.add_(1.0); });
         s.wait(o, s.a);
         s.kept.push_back(matmul(s.x, s.y));
       }},
      {"reduced while overwritten", "sum", "fill",
       [](Scene& s, const Stream& o) {
         s.on(s.a, [&] { s.kept.push_back(s.x.sum({1})); });
         s.wait(o, s.a);
         s.x.zero_();
       }},
      {"softmax of what is still written", "mul", "softmax",
       [](Scene& s, const Stream& o) {
         s.on(s.a, [&] { s.x.mul_(2.0); });
         s.wait(o, s.a);
         s.kept.push_back(softmax(s.x));
       }},
      {"two buffers swapped without a wait back", "mul", "copy",
       [](Scene& s, const Stream& o) {
         for (int i = 0; i < 2; ++i) {
           const Tensor& buffer = i == 0 ? s.y : s.z;
           buffer.copy_(s.x);
           s.a.wait_stream(o);
           s.on(s.a, [&] { s.kept.push_back(buffer * 2.0); });
         }
         s.wait(o, s.a);
         s.y.copy_(s.x);
       }},
      {"accumulated on two streams", "add", "add",
       [](Scene& s, const Stream&) {
         s.on(s.a, [&] { s.x.add_(s.y); });
         s.wait(s.b, s.a);
         s.on(s.b, [&] { s.x.add_(s.z); });
       }},
      {"result left on the side stream", "relu", "add",
       [](Scene& s, const Stream& o) {
         Tensor t;
         s.on(s.a, [&] { t = relu(s.x); });
         s.wait(o, s.a);
         s.kept.push_back(t + s.y);
         s.kept.push_back(t);
       }},
  };
  return all;
}

}  // namespace

TEST_SUITE("graphs/order") {
  TEST_CASE("F: 22 kinds of missing waits are found at the end of the capture") {
    for_each_device([](Device device) {
      REQUIRE(races().size() == 22);
      for (const Race& race : races()) {
        CAPTURE(race.kind);
        Scene scene(device);
        CHECK_NOTHROW(record(scene, race.body));
        scene.with_waits = false;
        CHECK_THROWS_WITH_AS(record(scene, race.body), Contains("lacks a wait: "), CaptureError);
        CHECK_THROWS_WITH_AS(record(scene, race.body), Contains(race.first), CaptureError);
        CHECK_THROWS_WITH_AS(record(scene, race.body),
                             Contains((std::string(race.second) + " of stream ").c_str()),
                             CaptureError);
        CHECK_THROWS_WITH_AS(record(scene, race.body), Contains("order_test.cpp:"), CaptureError);
      }
    });
  }

  TEST_CASE("the message names the missing wait, the capture leaves nothing, and the next works") {
    for_each_device([](Device device) {
      Scene scene(device);
      scene.with_waits = false;
      const Race& race = races().front();
      const auto wait = detail::concat("must wait for stream ", scene.a.id(), " after add (");
      CHECK_THROWS_WITH_AS(record(scene, race.body), Contains(wait.c_str()), CaptureError);
      CHECK(detail::active_captures() == 0);
      CHECK(current_stream(device) == default_stream(device));
      CHECK_FALSE(scene.a.is_capturing());
      scene.with_waits = true;
      CHECK_NOTHROW(record(scene, race.body));
    });
  }

  TEST_CASE("the check can be turned off, and run over the recording later") {
    for_each_device([](Device device) {
      Scene scene(device);
      Graph graph(device);
      capture(graph,
              [&] {
                const Stream origin = current_stream(device);
                scene.a.wait_stream(origin);
                scene.on(scene.a, [&] { scene.x.add_(1.0); });
                scene.x.mul_(2.0);
                origin.wait_stream(scene.a);
              },
              {.check_order = false});
      const auto findings = check_order(graph.recording());
      REQUIRE(findings.size() == 1);
      CHECK(findings[0].first == 0);
      CHECK(findings[0].second == 1);
    });
  }

  TEST_CASE("streams that share no element need no wait") {
    for_each_device([](Device device) {
      Scene scene(device);
      CHECK_NOTHROW(record(scene, [](Scene& s, const Stream&) {
        s.on(s.a, [&] { s.x.slice(1, 0, 2).add_(s.y.slice(1, 0, 2)); });
        s.on(s.b, [&] { s.x.slice(1, 2, 4).add_(s.y.slice(1, 2, 4)); });
        s.on(s.a, [&] { s.z.slice(0, 0, 2).fill_(1.0); });
        s.on(s.b, [&] { s.z.slice(0, 2, 4).fill_(2.0); });
        s.kept.push_back(s.y * 2.0);
      }));
    });
  }

  TEST_CASE("a training step with branches on three streams has every wait that it needs") {
    for_each_device([](Device device) {
      Scene scene(device);
      nn::Linear left(4, 4, {.device = device});
      nn::Linear right(4, 4, {.device = device});
      nn::SGD optimizer({left.weight, left.bias, right.weight, right.bias}, {.learning_rate = 0.1});
      CHECK_NOTHROW(record(scene, [&](Scene& s, const Stream& o) {
        optimizer.zero_grad();
        Tensor u;
        Tensor v;
        s.on(s.a, [&] { u = relu(left(s.x)); });
        s.on(s.b, [&] { v = tanh(right(s.y)); });
        o.wait_stream(s.a);
        o.wait_stream(s.b);
        const Tensor loss = ((u + v) * (u + v)).mean();
        loss.backward();
        optimizer.step();
        s.kept = {u, v, loss};
      }));
    });
  }
}

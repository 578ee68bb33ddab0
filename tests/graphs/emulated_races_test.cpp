// Races on emulated devices, of operations outside of captures and of replays: each is reported
// with both operations where its wait is missing, and is not where the wait is there.

#include <functional>
#include <string>
#include <vector>

#include "autograd/arithmetic.h"
#include "autograd/grad_mode.h"
#include "autograd/linalg.h"
#include "framework/memory/caching_allocator.h"
#include "framework/runtime/event.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/transfer.h"
#include "graphs/capture_scope.h"
#include "graphs/graph.h"
#include "nn/optim/sgd.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;

namespace {

const Device kFirst = Device::cpu(1);
const Device kSecond = Device::cpu(2);

struct Scene {
  void on(const Stream& stream, const std::function<void()>& body) const {
    const StreamGuard guard(stream);
    body();
  }
  void wait(const Stream& stream, const Stream& other) const {
    if (with_waits) stream.wait_stream(other);
  }
  void keep(Tensor tensor) { kept.push_back(std::move(tensor)); }

  bool with_waits = true;
  Stream o = default_stream(kFirst);
  Stream a = Stream::create(kFirst);
  Stream b = Stream::create(kFirst);
  Stream far = default_stream(kSecond);
  Stream far_side = Stream::create(kSecond);
  Tensor x = random_tensor({4, 4}, 1, DType::float32, kFirst);
  Tensor y = random_tensor({4, 4}, 2, DType::float32, kFirst);
  Tensor w = random_tensor({4, 4}, 4, DType::float32, kFirst).set_requires_grad();
  std::vector<Tensor> kept;
};

struct Race {
  const char* kind;
  const char* first;  // operations that the report names
  const char* second;
  std::function<void(Scene&)> body;
};

// `wait` is what the racing form of each leaves out.
const std::vector<Race>& races() {
  static const std::vector<Race> all{
      {"missing fork", "add", "mul",
       [](Scene& s) {
         s.x.add_(1.0);
         s.wait(s.a, s.o);
         s.on(s.a, [&] { s.keep(s.x * 2.0); });
       }},
      {"missing join", "add", "mul",
       [](Scene& s) {
         s.on(s.a, [&] { s.x.add_(1.0); });
         s.wait(s.o, s.a);
         s.keep(s.x * 2.0);
       }},
      {"in-place operation against a reader", "sum", "add",
       [](Scene& s) {
         s.on(s.a, [&] { s.keep(s.x.sum()); });
         s.wait(s.o, s.a);
         s.x.add_(1.0);
       }},
      {"two writers", "fill", "add",
       [](Scene& s) {
         s.on(s.a, [&] { s.x.fill_(1.0); });
         s.wait(s.o, s.a);
         s.x.add_(1.0);
       }},
      {"early reuse of a freed block", "mul", "add",
       [](Scene& s) {
         Tensor t = s.x + 1.0;
         s.a.wait_stream(s.o);
         s.on(s.a, [&] { s.keep(t * 2.0); });
         const void* const place = t.raw_data();
         s.wait(s.o, s.a);
         t = Tensor();
         for (int i = 0; i < 1000 && (i == 0 || s.kept.back().raw_data() != place); ++i) {
           s.keep(s.x + s.y);
         }
         REQUIRE(s.kept.back().raw_data() == place);
       }},
      {"early reuse against record_stream", "mul", "add",
       [](Scene& s) {
         Tensor t = s.x + 1.0;
         s.a.wait_stream(s.o);
         s.on(s.a, [&] { s.keep(t * 2.0); });
         const void* const place = t.raw_data();
         if (s.with_waits) t.record_stream(s.a);
         t = Tensor();
         for (int i = 0; i < 100 && s.kept.back().raw_data() != place; ++i) s.keep(s.x + s.y);
       }},
      {"two replays on unordered streams", "add (replay of \"g1\")", "mul (replay of \"g2\")",
       [](Scene& s) {
         Graph first(kFirst, {.name = "g1"});
         Graph second(kFirst, {.name = "g2"});
         capture(first, [&] { s.x.add_(1.0); });
         capture(second, [&] { s.x.mul_(2.0); });
         s.on(s.a, [&] { first.replay(); });
         s.wait(s.b, s.a);
         s.on(s.b, [&] { second.replay(); });
       }},
      {"replay consumed too early", "add (replay of \"g\")", "mul",
       [](Scene& s) {
         Graph graph(kFirst, {.name = "g"});
         Tensor y;
         capture(graph, [&] { y = s.x + 1.0; });
         s.on(s.a, [&] { graph.replay(); });
         s.wait(s.b, s.a);
         s.on(s.b, [&] { s.keep(y * 2.0); });
       }},
      {"input of a replay written too late", "copy", "add (replay of \"g\")",
       [](Scene& s) {
         Graph graph(kFirst, {.name = "g"});
         capture(graph, [&] { s.keep(s.x + 1.0); });
         s.x.copy_(s.y);
         s.wait(s.a, s.o);
         s.on(s.a, [&] { graph.replay(); });
       }},
      {"output overwritten by the next replay", "mul", "add (replay of \"g\")",
       [](Scene& s) {
         Graph graph(kFirst, {.name = "g"});
         Tensor y;
         capture(graph, [&] { y = s.x + 1.0; });
         graph.replay();
         s.a.wait_stream(s.o);
         s.on(s.a, [&] { s.keep(y * 2.0); });
         s.wait(s.o, s.a);
         graph.replay();
       }},
      {"copy into what is still read", "mul", "copy",
       [](Scene& s) {
         s.on(s.a, [&] { s.keep(s.x * s.y); });
         s.wait(s.o, s.a);
         s.y.copy_(s.x);
       }},
      {"host write while a copy is in flight", "copy_from_pinned", "fill",
       [](Scene& s) {
         const PinnedBuffer pinned(kFirst, 64);
         const Tensor host = from_blob(pinned.data(), {4, 4}, {});
         host.fill_(1.0);
         s.on(s.a, [&] { transfer_from_pinned(s.x, pinned); });
         if (s.with_waits) s.a.synchronize();
         host.fill_(2.0);
         s.a.synchronize();
       }},
      {"optimiser step against a reader", "mul", "sgd_step",
       [](Scene& s) {
         nn::SGD sgd({s.w}, {.learning_rate = 0.1});
         s.w.set_grad(s.x.clone());
         s.on(s.a, [&] {
           const NoGradGuard no_grad;
           s.keep(s.w * 2.0);
         });
         s.wait(s.o, s.a);
         sgd.step();
       }},
      {"gradient read while it is accumulated", "", "mul",
       [](Scene& s) {
         (s.x * s.w).sum().backward();
         (s.y * s.w).sum().backward();
         s.wait(s.a, s.o);
         s.on(s.a, [&] { s.keep(s.w.grad() * 2.0); });
       }},
      {"weight updated during backward", "", "sub",
       [](Scene& s) {
         (s.w * s.w).sum().backward();
         s.wait(s.a, s.o);
         const NoGradGuard no_grad;
         s.on(s.a, [&] { s.w.sub_(1.0); });
       }},
      {"random numbers read too early", "rand", "mul",
       [](Scene& s) {
         Tensor numbers;
         s.on(s.a, [&] { numbers = rand({4, 4}, {.device = kFirst}); });
         s.wait(s.o, s.a);
         s.keep(numbers * 2.0);
         s.a.wait_stream(s.o);
       }},
      {"transfer to another device of what is still written", "add", "copy",
       [](Scene& s) {
         s.on(s.a, [&] { s.x.add_(1.0); });
         s.wait(s.o, s.a);
         s.keep(s.x.to(kSecond));
       }},
      {"transferred values read too early", "copy", "mul",
       [](Scene& s) {
         s.keep(s.x.to(kSecond));
         s.wait(s.far_side, s.far);
         s.on(s.far_side, [&] { s.keep(s.kept.back() * 2.0); });
       }},
      {"source of a transfer overwritten", "copy", "add",
       [](Scene& s) {
         s.keep(s.x.to(kSecond));
         s.wait(s.a, s.far);
         s.on(s.a, [&] { s.x.add_(1.0); });
       }},
      {"host read on another stream", "add", "item",
       [](Scene& s) {
         const Tensor one = s.x.slice(0, 0, 1).slice(1, 0, 1);
         s.on(s.a, [&] { one.add_(1.0); });
         s.wait(s.o, s.a);
         (void)one.item();
       }},
      {"event recorded too early", "add", "mul",
       [](Scene& s) {
         Event early = s.a.record_event();
         s.on(s.a, [&] { s.x.add_(1.0); });
         if (s.with_waits) early.record(s.a);
         s.o.wait_event(early);
         s.keep(s.x * 2.0);
       }},
      {"waits for another stream", "add", "mul",
       [](Scene& s) {
         s.on(s.a, [&] { s.x.add_(1.0); });
         s.o.wait_stream(s.b);
         s.wait(s.o, s.a);
         s.keep(s.x * 2.0);
       }},
      {"host waits for another stream", "add", "mul",
       [](Scene& s) {
         s.on(s.a, [&] { s.x.add_(1.0); });
         (s.with_waits ? s.a : s.b).synchronize();
         s.keep(s.x * 2.0);
       }},
      {"rows in common", "add", "mul",
       [](Scene& s) {
         s.on(s.a, [&] { s.x.slice(0, 0, 2).add_(1.0); });
         s.wait(s.o, s.a);
         s.x.slice(0, 1, 3).mul_(2.0);
       }},
  };
  return all;
}

std::vector<std::string> reports_of(const Race& race, bool with_waits) {
  const CpuEmulation emulation({.seed = test_seed()});
  Scene scene;
  scene.with_waits = with_waits;
  race.body(scene);
  return CpuEmulation::take_reports();
}

}  // namespace

TEST_SUITE("graphs/emulated_races") {
  TEST_CASE("a race is reported with both operations and lines, and not once the wait is there") {
    for (const Race& race : races()) {
      CAPTURE(race.kind);
      const std::vector<std::string> ordered = reports_of(race, true);
      CHECK(ordered.empty());
      for (const std::string& report : ordered) MESSAGE(report);
      const std::vector<std::string> racing = reports_of(race, false);
      REQUIRE(!racing.empty());
      const std::string& report = racing.front();
      CAPTURE(report);
      const std::size_t second = report.find(" and " + std::string(race.second) + " of stream ");
      CHECK(report.find(std::string(race.first) + " of stream ") < second);
      CHECK(second != std::string::npos);
      CHECK(report.find("_test.cpp:") != std::string::npos);
      CHECK(report.find(" must ") != std::string::npos);
    }
  }

  TEST_CASE("the report names what the second stream has to wait for") {
    const CpuEmulation emulation;
    Scene scene;
    scene.with_waits = false;
    races().front().body(scene);
    const std::vector<std::string> reports = CpuEmulation::take_reports();
    REQUIRE(reports.size() == 1);
    CHECK(reports[0].find(detail::concat("stream ", scene.a.id(), " must wait for stream ",
                                         scene.o.id(), " after add (")) != std::string::npos);
    CHECK(reports[0].find("float32[4, 4] (64 bytes)") != std::string::npos);
    CHECK(CpuEmulation::reports().empty());
  }

  TEST_CASE("streams that share no element, and readers, are no race") {
    const Emulated emulated({.seed = test_seed()});
    Scene s;
    s.on(s.a, [&] { s.x.slice(1, 0, 2).add_(1.0); });
    s.on(s.b, [&] { s.x.slice(1, 2, 4).add_(1.0); });
    s.on(s.a, [&] { s.keep(s.y * 2.0); });
    s.on(s.b, [&] { s.keep(s.y * 3.0); });
    synchronize(kFirst);
  }
}

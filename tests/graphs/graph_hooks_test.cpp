#include <memory>
#include <stdexcept>
#include <string>

#include "autograd/arithmetic.h"
#include "framework/core/error.h"
#include "graphs/capture_scope.h"
#include "graphs/graph.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;
using doctest::Contains;

namespace {

// Notes the moments of a graph's life in the order in which they come.
struct Diary {
  std::string text;
  std::function<void()> note(const char* word) {
    return [this, word] { text += word; };
  }
};

}  // namespace

TEST_SUITE("graphs/graph_hooks") {
  TEST_CASE("hooks run at their moment, in the order of registration, until they are removed") {
    for_each_device([](Device device) {
      const Tensor x = zeros({2}, {.device = device});
      Graph graph(device);
      Diary diary;
      graph.register_replay_end_hook(diary.note("e"));
      graph.register_replay_start_hook(diary.note("s"));
      const int second = graph.register_replay_start_hook(diary.note("t"));
      graph.register_post_instantiate_hook(diary.note("i"));
      graph.register_capture_end_hook(diary.note("c"));
      capture(graph, [&] { x.add_(1.0); });
      CHECK(diary.text == "ci");
      graph.replay();
      CHECK(diary.text == "ciste");
      graph.remove_hook(second);
      CHECK_THROWS_WITH_AS(graph.remove_hook(second), Contains("there is no hook"), ValueError);
      CHECK_THROWS_AS(graph.register_replay_end_hook({}), ValueError);
      graph.reset();
      diary.text.clear();
      capture(graph, [&] { x.add_(1.0); });
      graph.replay();
      CHECK(diary.text == "cise");
      check_close(x, {2, 2}, 0.0);
    });
  }

  TEST_CASE("with keep_graph each instantiation is told, and the template is at hand before") {
    Graph graph(Device::cpu(), {.keep_graph = true});
    const Tensor x = zeros({2});
    Diary diary;
    graph.register_capture_end_hook([&] {
      CHECK_NOTHROW((void)graph.raw_graph());
      CHECK_FALSE(graph.is_ready());
      CHECK(graph.recording().operations.size() == 1);
      diary.text += 'c';
    });
    graph.register_post_instantiate_hook([&] {
      CHECK(graph.is_ready());
      diary.text += 'i';
    });
    capture(graph, [&] { x.add_(1.0); });
    CHECK(diary.text == "c");
    graph.instantiate();
    graph.instantiate();
    CHECK(diary.text == "cii");
  }

  TEST_CASE("an exception of a hook comes out and the graph stays usable") {
    for_each_device([](Device device) {
      const Tensor x = zeros({2}, {.device = device});
      const auto fail = [] { throw std::runtime_error("mine"); };
      Graph graph(device);
      Diary diary;
      const int at_capture = graph.register_capture_end_hook(fail);
      graph.register_capture_end_hook(diary.note("skipped"));
      CHECK_THROWS_WITH_AS(capture(graph, [&] { x.add_(1.0); }), "mine", std::runtime_error);
      CHECK(diary.text.empty());
      CHECK(graph.is_ready());
      graph.remove_hook(at_capture);

      graph.register_replay_end_hook(diary.note("e"));
      const int at_start = graph.register_replay_start_hook(fail);
      CHECK_THROWS_WITH_AS(graph.replay(), "mine", std::runtime_error);
      check_close(x, {0, 0}, 0.0);
      CHECK(graph.replay_count() == 0);
      CHECK(diary.text.empty());
      graph.remove_hook(at_start);

      graph.register_replay_end_hook(fail);
      CHECK_THROWS_WITH_AS(graph.replay(), "mine", std::runtime_error);
      check_close(x, {1, 1}, 0.0);
      CHECK(graph.replay_count() == 1);
      CHECK(diary.text == "e");
    });
  }

  TEST_CASE("end hooks also run after a replay that failed") {
    const Tensor x = zeros({2});
    const GraphPool pool = graph_pool_handle(Device::cpu());
    Graph inner(Device::cpu());
    capture(inner, [&] { x.add_(1.0); }, {.pool = pool});
    Diary diary;
    inner.register_replay_start_hook(diary.note("s"));
    inner.register_replay_end_hook(diary.note("e"));
    Graph outer(Device::cpu());
    capture(outer,
            [&] {
              x.add_(1.0);
              CHECK_THROWS_AS(inner.replay(), CaptureError);
            },
            {.pool = pool});
    CHECK(diary.text == "se");
  }

  TEST_CASE("a hook cannot change the graph that it belongs to") {
    const Tensor x = zeros({2});
    Graph graph(Device::cpu(), {.name = "g"});
    capture(graph, [&] { x.add_(1.0); });
    const auto refused = Contains("a hook of graph \"g\" runs");
    int id = 0;
    id = graph.register_replay_start_hook([&] {
      CHECK_THROWS_WITH_AS(graph.replay(), refused, StateError);
      CHECK_THROWS_WITH_AS(graph.reset(), refused, StateError);
      CHECK_THROWS_WITH_AS(graph.instantiate(), refused, StateError);
      CHECK_THROWS_WITH_AS(graph.capture_begin(), refused, StateError);
      graph.remove_hook(id);
    });
    graph.replay();
    graph.replay();
    check_close(x, {2, 2}, 0.0);
  }

  TEST_CASE("retained objects live until reset, and with captures that contain the graph") {
    const Tensor x = zeros({2});
    const auto kept = std::make_shared<int>(1);
    Graph inner;
    CHECK_THROWS_WITH_AS(inner.retain_object(kept), Contains("is empty"), StateError);
    capture(inner, [&] {
      x.add_(1.0);
      inner.retain_object(kept);
    });
    CHECK(kept.use_count() == 2);
    const auto late = std::make_shared<int>(2);
    inner.retain_object(late);
    CHECK(late.use_count() == 2);
    Graph outer;
    capture(outer, [&] { inner.replay(); });
    inner.reset();
    CHECK(kept.use_count() == 2);
    CHECK(late.use_count() == 2);
    outer.reset();
    CHECK(kept.use_count() == 1);
    CHECK(late.use_count() == 1);

    CHECK_THROWS_AS(capture(inner,
                            [&] {
                              inner.retain_object(kept);
                              throw std::runtime_error("mine");
                            }),
                    std::runtime_error);
    CHECK(kept.use_count() == 1);
  }

  TEST_CASE("raw handles are there when their object is") {
    for_each_device([](Device device) {
      const Tensor x = zeros({2}, {.device = device});
      Graph graph(device, {.name = "g"});
      CHECK_THROWS_WITH_AS((void)graph.raw_graph(), Contains("graph \"g\" is empty"), StateError);
      capture(graph, [&] { x.add_(1.0); });
      CHECK_THROWS_WITH_AS((void)graph.raw_graph(), Contains("{.keep_graph = true}"), StateError);
      CHECK((graph.raw_exec() != nullptr) == device.is_gpu());

      Graph kept(device, {.keep_graph = true});
      capture(kept, [&] { x.add_(1.0); });
      CHECK((kept.raw_graph() != nullptr) == device.is_gpu());
      CHECK_THROWS_WITH_AS((void)kept.raw_exec(), Contains("call instantiate() first"), StateError);
      kept.instantiate();
      CHECK((kept.raw_exec() != nullptr) == device.is_gpu());
      CHECK_NOTHROW((void)kept.raw_graph());
    });
  }
}

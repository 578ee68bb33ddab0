#include "framework/runtime/forbidden.h"

#include <algorithm>
#include <thread>

#include "autograd/arithmetic.h"
#include "graphs/capture_scope.h"
#include "ops/creation.h"
#include "tests/graphs/forbidden_calls.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;

TEST_SUITE("graphs/forbidden") {
  TEST_CASE("every row of the table is tried below") {
    for_each_device([](Device device) {
      ForbiddenCalls scene(device);
      const std::vector<ForbiddenCalls::Row> rows = scene.rows();
      for (const ForbiddenCall& row : forbidden_table()) {
        if (device.is_host() &&
            (row.call == Forbidden::copy_across || row.call == Forbidden::wait_event_across)) {
          continue;
        }
        CAPTURE(std::string(row.operation));
        CHECK(std::any_of(rows.begin(), rows.end(), [&](const ForbiddenCalls::Row& tried) {
          return tried.call == row.call;
        }));
      }
    });
  }

  TEST_CASE(
      "K2: a refusal names operation, number, module, line, reason and remedy, and harms "
      "nothing") {
    for_each_device([](Device device) {
      ForbiddenCalls scene(device);
      const std::string net = "net";
      const std::string fc1 = "fc1";
      const Tensor y = ones({1}, {.device = device});
      for (const ForbiddenCalls::Row& row : scene.rows()) {
        CAPTURE(row.operation);
        Graph graph(device);
        const Where here = Where::current();
        std::string text;
        capture(graph, [&] {
          y.add_(1.0);
          y.add_(1.0);
          const ModuleScope outer(net);
          const ModuleScope inner(fc1);
          text = refusal([&] { row.make(here); });
          y.sub_(2.0);
        });
        CHECK(text == detail::concat("in net.fc1: ", row.operation, ": not possible while ", device,
                                     " captures, as operation number 3 of the recording: ", row.why,
                                     " (at ", place_of(here), ")"));
        REQUIRE(graph.recording().operations.size() == 3);
        graph.replay();
        CHECK(y.item() == 1.0);
      }
    });
  }

  TEST_CASE("outside of a capture every entry point works") {
    for_each_device([](Device device) {
      ForbiddenCalls scene(device);
      for (const ForbiddenCalls::Row& row : scene.rows()) {
        CAPTURE(row.operation);
        scene.other.reset();
        CHECK_NOTHROW(row.make(Where::current()));
      }
    });
  }

  TEST_CASE("a stream that captures is refused under whatever stream is current") {
    for_each_device([](Device device) {
      const Tensor x = ones({1}, {.device = device});
      Graph graph(device);
      capture(graph, [&] {
        const Stream captured = current_stream(device);
        const StreamGuard guard(default_stream(device));
        CHECK_THROWS_WITH_AS(captured.synchronize(),
                             doctest::Contains("as operation number 1 of the recording"),
                             CaptureError);
        std::thread([&] { CHECK(refusal([&] { (void)captured.query(); }) != ""); }).join();
        const StreamGuard back(captured);
        x.add_(1.0);
      });
      CHECK(graph.is_ready());
    });
  }
}

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "autograd/arithmetic.h"
#include "autograd/math.h"
#include "graphs/capture_scope.h"
#include "graphs/graph.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;
using doctest::Contains;

namespace {

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_SUITE("graphs/graph_dot") {
  TEST_CASE("the recording names operations, lines, streams and order") {
    for_each_device([](Device device) {
      const Tensor x = ones({2, 3}, {.device = device});
      Tensor y;
      Graph graph(device);
      std::uint_least32_t line = 0;
      capture(graph, [&] {
        line = Where::current().line() + 1;
        y = relu(x);
        y = y + 1.0;
      });
      const std::vector<RecordedOp>& operations = graph.recording().operations;
      REQUIRE(operations.size() == 2);
      CHECK(operations[0].name == "relu");
      CHECK(operations[0].where.line() == line);
      CHECK(operations[1].where.line() == line + 1);
      CHECK(operations[0].detail == "float32[2, 3]");
      CHECK(operations[0].after.empty());
      CHECK(operations[1].after == std::vector<std::int64_t>{0});
    });
  }

  TEST_CASE("N1: to_dot shows a fork and join as four nodes and four edges") {
    for_each_device([](Device device) {
      const Tensor a = ones({2, 3}, {.device = device});
      const Stream side = Stream::create(device);
      Tensor w;
      Graph graph(device, {.name = "say \"hi\""});
      capture(graph, [&] {
        const Tensor r = relu(a);
        const Stream origin = current_stream(device);
        side.wait_stream(origin);
        Tensor v;
        {
          const StreamGuard guard(side);
          v = r * 2.0;
        }
        const Tensor u = r + 1.0;
        origin.wait_stream(side);
        w = u + v;
      });
      graph.replay();
      check_close(w, {4, 4, 4, 4, 4, 4}, 0.0);

      const std::string dot = graph.to_dot();
      CHECK(dot.starts_with("digraph \"say \\\"hi\\\"\" {\n"));
      CHECK(count(dot, "[label=") == 4);
      CHECK(count(dot, " -> ") == 4);
      for (const char* edge : {"n0 -> n1;", "n0 -> n2;", "n1 -> n3;", "n2 -> n3;"}) {
        CHECK(count(dot, edge) == 1);
      }
      CHECK(count(dot, "#cfe2f3") == 3);
      CHECK(count(dot, "#f9cb9c") == 1);
      CHECK(count(dot, "relu\\nfloat32[2, 3]\\nreads 24 B, writes 24 B\\ngraph_dot_test.cpp:") ==
            1);
    });
  }

  TEST_CASE("debug_dump writes the DOT text, or says that it cannot") {
    const Tensor x = ones({2});
    Graph graph;
    capture(graph, [&] { x.add_(1.0); });
    const std::filesystem::path file = std::filesystem::temp_directory_path() / "capstan_graph.dot";
    graph.debug_dump(file.string());
    std::ifstream input(file);
    CHECK(std::string{std::istreambuf_iterator<char>(input), {}} == graph.to_dot());
    std::filesystem::remove(file);
    CHECK_THROWS_WITH_AS(graph.debug_dump("/nowhere/graph.dot"),
                         Contains("debug_dump: cannot write \"/nowhere/graph.dot\""), DataError);
  }
}

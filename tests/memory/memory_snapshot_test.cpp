#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "capstan.h"
#include "framework/memory/block_pool.h"
#include "tests/memory/fake_runtime.h"
#include "tests/memory/snapshot_walk.h"

namespace capstan {
namespace {

using testing::FakeRuntime;
using testing::kPlenty;
using testing::occurrences;

struct HistoryEnds {
  ~HistoryEnds() { allocator(Device::cpu()).record_history(0); }
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_SUITE("memory/memory_snapshot") {
  TEST_CASE("a snapshot lists pools, segments and the state of every block") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream own(make_ref<StreamState>(fake, nullptr, 0, false));
    const Stream other(make_ref<StreamState>(fake, nullptr, 0, false));
    const std::uint64_t pool = memory.create_pool("a \"quoted\" </script>");
    Block* used = memory.allocate(1000, own.state());
    Block* waiting = memory.allocate(512, own.state());
    memory.record_stream(waiting, other.state());
    fake.shut(other);
    memory.free(waiting);
    const std::string json = memory.snapshot();
    const std::string stream = std::to_string(own.id());
    CHECK(has(json,
              "{\"device\":\"cpu\",\"total\":{\"allocated_bytes\":1536,\"reserved_bytes\":"
              "2097152,\"requested_bytes\":1512,\"blocks\":2,\"segments\":1,"));
    CHECK(has(json, "\"awaiting_bytes\":512,\"limit\":null"));
    CHECK(has(json, "\"name\":\"a \\\"quoted\\\" \\u003c/script>\""));
    CHECK(has(json, "\"bytes\":1024,\"requested\":1000,\"state\":\"in_use\",\"stream\":" + stream));
    CHECK(has(json, "\"bytes\":512,\"requested\":512,\"state\":\"awaiting_free\",\"stream\":"));
    CHECK(has(json, "\"bytes\":2095616,\"requested\":0,\"state\":\"free\",\"stream\":" + stream));
    CHECK(has(json, "\"history\":[]}"));
    CHECK(occurrences(json, "{") == occurrences(json, "}"));
    memory.free(used);
    memory.release_pool(pool);
  }

  TEST_CASE("the history is a ring of the last events, and off at first") {
    FakeRuntime fake(kPlenty);
    CachingAllocator memory(fake);
    const Stream own(make_ref<StreamState>(fake, nullptr, 0, false));
    Block* early = memory.allocate(512, own.state());
    CHECK(has(memory.snapshot(), "\"history\":[]"));
    memory.record_history(4);
    memory.free(early);
    memory.free(memory.allocate(600, own.state()));
    const std::string json = memory.snapshot();
    CHECK(occurrences(json, "\"action\":") == 4);
    CHECK(occurrences(json, "\"free_requested\"") == 1);  // the one of `early` has left the ring
    CHECK(occurrences(json, "\"free_completed\"") == 2);
    CHECK(occurrences(json, "\"alloc\"") == 1);
    (void)memory.empty_cache();
    CHECK(has(memory.snapshot(), "\"segment_free\""));
    memory.record_history(0);
    CHECK(has(memory.snapshot(), "\"history\":[]"));
    memory.free(memory.allocate(600, own.state()));
  }

  TEST_CASE("a block names the operation and the user's line it comes from") {
    const HistoryEnds ends;
    allocator(Device::cpu()).record_history(1000);
    const Tensor x = ones({70'000});
    const Tensor y = x * 2.0;
    const unsigned line = __LINE__ - 1;
    const std::string json = memory_snapshot();
    const std::string place = "\"operation\":\"mul\",\"file\":\"" + std::string(__FILE__) +
                              "\",\"line\":" + std::to_string(line);
    CHECK(occurrences(json, place) == 2);  // the block and its event
    CHECK(y.slice(0, 0, 1).item() == 2.0);
  }

  TEST_CASE("the page holds the snapshot and loads nothing") {
    const std::string base = (std::filesystem::temp_directory_path() / "capstan_memory").string();
    const Tensor x = ones({1000});
    write_memory_snapshot(base + ".json");
    write_memory_snapshot(base + ".html");
    const std::string json = contents(base + ".json");
    const std::string page = contents(base + ".html");
    CHECK(json.starts_with("{\"device\":\"cpu\""));
    CHECK(page.starts_with("<!DOCTYPE html>"));
    CHECK(has(page, "{\"device\":\"cpu\",\"total\":"));
    for (const char* outside : {"http", "src=", "href=", "@import", "fetch("}) {
      CHECK_FALSE(has(page, outside));
    }
    CHECK(occurrences(page, "</script>") == 2);
    std::filesystem::remove(base + ".json");
    std::filesystem::remove(base + ".html");
    CHECK_THROWS_WITH_AS(
        write_memory_snapshot("/nowhere/x.html"),
        doctest::Contains("write_memory_snapshot: cannot write \"/nowhere/x.html\""), DataError);
  }
}

}  // namespace capstan

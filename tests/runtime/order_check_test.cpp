#include "framework/runtime/order_check.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <random>

using namespace capstan;
using doctest::Contains;

namespace {

alignas(64) std::byte memory[1 << 16];

Access bytes(std::int64_t first, std::int64_t count) {
  return {.address = memory + first, .bytes = count};
}

RecordedOp operation(std::uint64_t stream, std::vector<Access> reads, std::vector<Access> writes,
                     std::vector<std::int64_t> after) {
  RecordedOp op;
  op.name = "op";
  op.stream = stream;
  op.reads = std::move(reads);
  op.writes = std::move(writes);
  op.after = std::move(after);
  return op;
}

// All pairs, by reachability: what the check is measured against.
class Oracle {
 public:
  explicit Oracle(const Recording& recording)
      : operations_(recording.operations),
        reached_(operations_.size(), std::vector<bool>(operations_.size(), false)) {
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      for (const std::int64_t edge : operations_[i].after) {
        const auto before = static_cast<std::size_t>(edge);
        reached_[i][before] = true;
        for (std::size_t k = 0; k < before; ++k) {
          if (reached_[before][k]) reached_[i][k] = true;
        }
      }
    }
  }

  [[nodiscard]] bool races(std::size_t first, std::size_t second) const {
    return !reached_[second][first] &&
           (meet(operations_[first].writes, operations_[second].writes) ||
            meet(operations_[first].writes, operations_[second].reads) ||
            meet(operations_[first].reads, operations_[second].writes));
  }

  [[nodiscard]] int count() const {
    int found = 0;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) found += races(k, i) ? 1 : 0;
    }
    return found;
  }

 private:
  static bool meet(const std::vector<Access>& a, const std::vector<Access>& b) {
    for (const Access& x : a) {
      for (const Access& y : b) {
        const auto* const begin_x = static_cast<const std::byte*>(x.address);
        const auto* const begin_y = static_cast<const std::byte*>(y.address);
        if (begin_x < begin_y + y.bytes && begin_y < begin_x + x.bytes) return true;
      }
    }
    return false;
  }

  const std::vector<RecordedOp>& operations_;
  std::vector<std::vector<bool>> reached_;
};

Recording random_recording(std::mt19937_64& random) {
  const auto below = [&](std::uint64_t limit) {
    return static_cast<std::int64_t>(random() % limit);
  };
  const auto streams = static_cast<std::uint64_t>(1 + below(4));
  std::vector<std::int64_t> last(streams, -1);
  Recording recording;
  const std::int64_t count = 2 + below(24);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto stream = static_cast<std::uint64_t>(below(streams));
    std::vector<std::int64_t> after;
    // A relaxed recording does not order the operations of one stream either.
    if (last[stream] >= 0 && below(8) != 0) after.push_back(last[stream]);
    while (i > 0 && below(3) == 0) after.push_back(below(static_cast<std::uint64_t>(i)));
    std::vector<Access> reads;
    std::vector<Access> writes;
    while (below(2) == 0) reads.push_back(bytes(below(24), 1 + below(8)));
    if (below(2) == 0) writes.push_back(bytes(below(24), 1 + below(8)));
    recording.operations.push_back(
        operation(stream, std::move(reads), std::move(writes), std::move(after)));
    last[stream] = i;
  }
  return recording;
}

}  // namespace

TEST_SUITE("runtime/order_check") {
  TEST_CASE("a finding names operations, lines, modules, memory and the missing wait") {
    Recording recording;
    recording.operations.push_back(operation(3, {}, {bytes(0, 24)}, {}));
    recording.operations.push_back(operation(5, {bytes(0, 24)}, {}, {}));
    RecordedOp& add = recording.operations[0];
    add.name = "add";
    add.where = Where::current();
    add.writes[0].shape = {2, 3};
    add.writes[0].strides = {3, 1};
    recording.operations[1].name = "mul";
    recording.operations[1].module = "net.fc1";
    const auto findings = check_order(recording);
    REQUIRE(findings.size() == 1);
    const std::string text = describe(recording, findings[0]);
    const std::string line =
        std::string(add.where.file_name()) + ":" + std::to_string(add.where.line());
    CHECK(text == "add of stream 3 (at " + line +
                      ") writes float32[2, 3] (24 bytes) and mul of stream 5 in net.fc1 (at "
                      "unknown line) reads it; stream 5 must wait for stream 3 after add (" +
                      line + ")");
  }

  TEST_CASE("memory of another owner in the same place is called reused") {
    const RefCounted* const owners = reinterpret_cast<const RefCounted*>(memory);
    Recording recording;
    recording.operations.push_back(operation(1, {bytes(0, 24)}, {}, {}));
    recording.operations.push_back(operation(2, {}, {bytes(8, 8)}, {}));
    recording.operations[0].reads[0].owner = owners;
    recording.operations[1].writes[0].owner = owners + 1;
    const auto findings = check_order(recording);
    REQUIRE(findings.size() == 1);
    CHECK_MESSAGE(describe(recording, findings[0]).find("reused too early") != std::string::npos,
                  describe(recording, findings[0]));
  }

  TEST_CASE("a chain of edges over a third stream is an order") {
    Recording recording;
    recording.operations.push_back(operation(1, {}, {bytes(0, 8)}, {}));
    recording.operations.push_back(operation(2, {}, {}, {0}));
    recording.operations.push_back(operation(3, {}, {bytes(0, 8)}, {1}));
    CHECK(check_order(recording).empty());
    recording.operations[1].after.clear();
    CHECK(check_order(recording).size() == 1);
  }

  TEST_CASE("operations of one stream without an edge between them are found too") {
    Recording recording;
    recording.operations.push_back(operation(1, {}, {bytes(0, 8)}, {}));
    recording.operations.push_back(operation(1, {bytes(0, 8)}, {}, {}));
    const auto findings = check_order(recording);
    REQUIRE(findings.size() == 1);
    CHECK(describe(recording, findings[0]).find("op must come after op") != std::string::npos);
  }

  TEST_CASE("in 2,000 random recordings every finding is a race, and one edge each leaves none") {
    std::mt19937_64 random(20261);
    int with_races = 0;
    for (int round = 0; round < 2000; ++round) {
      Recording recording = random_recording(random);
      const auto findings = check_order(recording);
      {
        const Oracle oracle(recording);
        with_races += oracle.count() > 0 ? 1 : 0;
        REQUIRE(findings.empty() == (oracle.count() == 0));
        for (const OrderFinding& finding : findings) {
          REQUIRE(oracle.races(static_cast<std::size_t>(finding.first),
                               static_cast<std::size_t>(finding.second)));
        }
      }
      for (const OrderFinding& finding : findings) {
        recording.operations[static_cast<std::size_t>(finding.second)].after.push_back(
            finding.first);
      }
      REQUIRE(Oracle(recording).count() == 0);
      REQUIRE(check_order(recording).empty());
    }
    CHECK(with_races > 500);
    CHECK(with_races < 1900);
  }

  TEST_CASE("twice the operations take about twice the time") {
    const auto milliseconds = [](std::int64_t count) {
      Recording recording;
      for (std::int64_t i = 0; i < count; ++i) {
        std::vector<std::int64_t> after;
        for (std::int64_t k = std::max<std::int64_t>(0, i - 4); k < i; ++k) after.push_back(k);
        recording.operations.push_back(operation(
            static_cast<std::uint64_t>(i % 4), {bytes(i * 64 % 32768, 64), bytes(0, 65536)},
            {bytes((i * 64 + 4096) % 32768, 64)}, std::move(after)));
      }
      const auto start = std::chrono::steady_clock::now();
      CHECK(check_order(recording).empty());
      return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
          .count();
    };
    (void)milliseconds(1000);
    const double once = milliseconds(4000);
    CHECK(milliseconds(16000) < 4 * 4 * once + 50.0);
  }
}

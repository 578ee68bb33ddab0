#include "framework/runtime/access_history.h"

#include <doctest/doctest.h>

#include <array>

using namespace capstan;

namespace {

alignas(64) std::array<std::byte, 4096> memory;

Access bytes(std::int64_t first, std::int64_t count) {
  return {.address = memory.data() + first, .bytes = count};
}

// float32 elements; `first` counts bytes.
Access strided(std::int64_t first, const Shape& shape, const Strides& strides) {
  std::int64_t last = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) last += (shape[axis] - 1) * strides[axis];
  return {.address = memory.data() + first,
          .bytes = (last + 1) * 4,
          .shape = shape,
          .strides = strides};
}

}  // namespace

TEST_SUITE("runtime/access_history") {
  TEST_CASE("dense accesses overlap where they share a byte") {
    CHECK(overlap(bytes(0, 8), bytes(7, 8)));
    CHECK(overlap(bytes(4, 1), bytes(0, 8)));
    CHECK_FALSE(overlap(bytes(0, 8), bytes(8, 8)));
    CHECK_FALSE(overlap(bytes(0, 0), bytes(0, 8)));
  }

  TEST_CASE("strided accesses overlap where they share an element") {
    const Access left = strided(0, {8, 2}, {4, 1});
    const Access right = strided(8, {8, 2}, {4, 1});
    const Access middle = strided(4, {8, 2}, {4, 1});
    CHECK_FALSE(overlap(left, right));
    CHECK(overlap(left, middle));
    CHECK(overlap(middle, right));
    CHECK(overlap(left, strided(0, {2, 8}, {1, 4})));         // its transpose
    CHECK_FALSE(overlap(right, strided(4, {1, 8}, {1, 4})));  // another column
    CHECK(overlap(right, strided(0, {4}, {1})));              // a whole row
    CHECK_FALSE(overlap(strided(0, {16}, {2}), strided(4, {15}, {2})));
    CHECK(overlap(strided(0, {16}, {2}), strided(4, {5}, {3})));
    // A stretched axis reaches no further element.
    CHECK_FALSE(overlap(strided(0, {8, 100, 2}, {4, 0, 1}), strided(8, {8, 2}, {4, 1})));
    // A block in the middle of three axes.
    CHECK_FALSE(overlap(strided(0, {2, 2, 2}, {16, 4, 1}), strided(8, {2, 2, 2}, {16, 4, 1})));
  }

  TEST_CASE("a use is known to be over if the clock counts it") {
    const Access whole[] = {bytes(0, 64)};
    const Access part[] = {bytes(16, 16)};
    AccessHistory history;
    CHECK(history.add({.number = 0, .chain = 0, .position = 1, .writes = whole}, {1}).empty());
    CHECK(history.in_use(memory.data() + 63, 1, {0, 9}));
    CHECK_FALSE(history.in_use(memory.data() + 63, 1, {1}));
    CHECK_FALSE(history.in_use(memory.data() + 64, 1, {}));

    CHECK(history.add({.number = 1, .chain = 1, .position = 1, .reads = part}, {1, 1}).empty());
    const auto found =
        history.add({.number = 2, .chain = 2, .position = 1, .reads = part}, {0, 1, 1});
    REQUIRE(found.size() == 1);
    CHECK(found[0].first == 0);
    CHECK(found[0].second == 2);
    CHECK(found[0].first_access == &whole[0]);
    CHECK(found[0].first_writes);
    CHECK_FALSE(found[0].second_writes);
    history.clear();
    CHECK_FALSE(history.in_use(memory.data(), 64, {}));
  }

  TEST_CASE("of a chain the last operation in conflict is named") {
    const Access first[] = {bytes(0, 8)};
    const Access second[] = {bytes(8, 8)};
    const Access both[] = {bytes(0, 16)};
    AccessHistory history;
    (void)history.add({.number = 10, .chain = 0, .position = 1, .writes = first}, {1});
    (void)history.add({.number = 11, .chain = 0, .position = 2, .writes = second}, {2});
    (void)history.add({.number = 12, .chain = 0, .position = 3, .reads = first}, {3});
    const auto read = history.add({.number = 13, .chain = 1, .position = 1, .reads = both}, {0, 1});
    REQUIRE(read.size() == 1);
    CHECK(read[0].first == 11);
    const auto write =
        history.add({.number = 14, .chain = 1, .position = 2, .writes = both}, {0, 2});
    REQUIRE(write.size() == 1);
    CHECK(write[0].first == 12);
  }

  TEST_CASE("an operation is no conflict with itself") {
    const Access both[] = {bytes(0, 16)};
    AccessHistory history;
    CHECK(history.add({.chain = 0, .position = 1, .reads = both, .writes = both}, {1}).empty());
  }
}

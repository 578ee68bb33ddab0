#include "framework/random/philox.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>

namespace capstan {
namespace {

using Words = std::array<std::uint32_t, 4>;

Words words_of(const PhiloxBlock& block) {
  return {block.word[0], block.word[1], block.word[2], block.word[3]};
}

}  // namespace

TEST_SUITE("random/philox") {
  TEST_CASE("matches the published vectors for ten rounds") {
    CHECK(words_of(philox(0, 0, 0)) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    CHECK(words_of(philox(~0ull, ~0ull, ~0ull)) ==
          Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    // The digits of pi: counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0, words
    // from the lowest up.
    CHECK(words_of(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e)) ==
          Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  }

  TEST_CASE("uniform numbers reach 0 and stay below 1") {
    CHECK(to_uniform(0) == 0.0f);
    CHECK(to_uniform(0x80000000u) == 0.5f);
    CHECK(to_uniform(0xffffffffu) < 1.0f);
    CHECK(to_uniform(0xffffffffu) == 1.0f - 1.0f / 16777216.0f);
  }

  TEST_CASE("captured arguments read seed and offset where they are used") {
    std::array<std::uint64_t, 2> state{5, 8};
    const PhiloxArgs args{.seed = 1, .offset = 12, .captured = state.data()};
    CHECK(args.key() == 5);
    CHECK(args.first_block() == 5);
    state = {6, 100};
    CHECK(args.key() == 6);
    CHECK(args.first_block() == 28);
    CHECK(PhiloxArgs{.seed = 3, .offset = 12}.key() == 3);
    CHECK(PhiloxArgs{.seed = 3, .offset = 12}.first_block() == 3);
  }
}

}  // namespace capstan

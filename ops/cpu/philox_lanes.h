#pragma once

#include <algorithm>
#include <cstdint>

#include "framework/random/philox.h"
#include "framework/runtime/parallel.h"

namespace capstan::cpu {

/// Words per group: 16 blocks side by side, so that the rounds vectorise.
inline constexpr std::int64_t kPhiloxLanes = 16;
inline constexpr std::int64_t kPhiloxGroup = 4 * kPhiloxLanes;

/// The words of blocks counter .. counter + 15, in order; the same numbers as `philox`.
inline void philox_group(std::uint64_t key, std::uint64_t counter,
                         std::uint32_t (&words)[kPhiloxGroup]) {
  PhiloxBlock blocks[kPhiloxLanes];
  for (std::uint64_t lane = 0; lane < kPhiloxLanes; ++lane) {
    blocks[lane] = philox(key, counter + lane);
  }
  for (std::int64_t i = 0; i < kPhiloxGroup; ++i) words[i] = blocks[i / 4].word[i % 4];
}

/// Calls `body(first, count, words)` for consecutive elements, word i for element i.
template <typename Body>
void for_each_word_group(const PhiloxArgs& random, std::int64_t numel, const Body& body) {
  const std::uint64_t key = random.key();
  const std::uint64_t first_block = random.first_block();
  const std::int64_t groups = (numel + kPhiloxGroup - 1) / kPhiloxGroup;
  parallel_for(groups, 128, [&](std::int64_t begin, std::int64_t end) {
    std::uint32_t words[kPhiloxGroup];
    for (std::int64_t group = begin; group < end; ++group) {
      philox_group(key, first_block + static_cast<std::uint64_t>(group * kPhiloxLanes), words);
      const std::int64_t first = group * kPhiloxGroup;
      body(first, std::min(kPhiloxGroup, numel - first), words);
    }
  });
}

}  // namespace capstan::cpu

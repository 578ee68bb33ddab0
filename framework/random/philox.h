#pragma once

#include <cstdint>

#include "framework/core/host_device.h"

// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), shared by
// CPU and GPU kernels. Word i of an operation that starts at `offset` is word i % 4 of the block
// with counter offset / 4 + i / 4, whatever the launch shape, so both devices agree bit for bit.
namespace capstan {

/// How a kernel gets its random numbers. Eagerly `seed` and `offset` are the numbers themselves; in
/// a capture `captured` points at device memory {seed, offset} that each replay fills, and `offset`
/// counts from there.
struct PhiloxArgs {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;  // in 32-bit words, a multiple of 4
  const std::uint64_t* captured = nullptr;

  CAPSTAN_HOST_DEVICE std::uint64_t key() const { return captured != nullptr ? captured[0] : seed; }
  CAPSTAN_HOST_DEVICE std::uint64_t first_block() const {
    return (captured != nullptr ? captured[1] + offset : offset) / 4;
  }
};

struct PhiloxBlock {
  std::uint32_t word[4];
};

CAPSTAN_HOST_DEVICE inline PhiloxBlock philox(std::uint64_t key, std::uint64_t counter_low,
                                              std::uint64_t counter_high = 0) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53u;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57u;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9u;
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85u;
  std::uint32_t c0 = static_cast<std::uint32_t>(counter_low);
  std::uint32_t c1 = static_cast<std::uint32_t>(counter_low >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(counter_high);
  std::uint32_t c3 = static_cast<std::uint32_t>(counter_high >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(key);
  std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = kMultiplier0 * c0;
    const std::uint64_t p1 = kMultiplier1 * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

/// Uniform in [0, 1) from the top 24 bits.
CAPSTAN_HOST_DEVICE inline float to_uniform(std::uint32_t word) {
  return static_cast<float>(word >> 8) * (1.0f / 16777216.0f);
}

}  // namespace capstan

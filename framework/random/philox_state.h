#pragma once

#include <cstdint>

#include "framework/runtime/stream.h"

namespace capstan::gpu {

/// Writes {seed, offset} to the two words at `state` in device memory, in the order of `stream`.
/// The values travel with the call, so no host memory must outlive it.
void set_philox_state(std::uint64_t* state, std::uint64_t seed, std::uint64_t offset,
                      StreamState& stream);

}  // namespace capstan::gpu

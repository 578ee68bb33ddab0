#pragma once

#include <cstdint>

#include "framework/runtime/stream.h"

namespace capstan {

/// Fills the two words {seed, offset} that kernels of a replay find in device memory. The values
/// travel with the call, so no host memory must outlive it.
struct SetPhiloxArgs {
  std::uint64_t* words;
  std::uint64_t seed;
  std::uint64_t offset;
};

/// Fills `words` from those at `from`, and moves on by `offset`.
struct ShiftPhiloxArgs {
  std::uint64_t* words;
  const std::uint64_t* from;
  std::uint64_t offset;
};

namespace cpu {
void set_philox_state(const SetPhiloxArgs& args);
void shift_philox_state(const ShiftPhiloxArgs& args);
}  // namespace cpu

namespace gpu {
void set_philox_state(const SetPhiloxArgs& args, StreamState& stream);
void shift_philox_state(const ShiftPhiloxArgs& args, StreamState& stream);
}  // namespace gpu

}  // namespace capstan

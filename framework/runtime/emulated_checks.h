#pragma once

#include <atomic>
#include <string_view>

#include "framework/runtime/recording.h"

namespace capstan {

class StreamState;

namespace detail {

/// True while a CpuEmulation that checks operations lives.
inline constinit std::atomic<bool> checks_operations{false};

/// Checks an operation about to be submitted to `stream`, which does not capture.
/// @throws StateError with the report, where the emulation is to throw.
void check_operation(RecordedOp operation, StreamState& stream);
/// The same for all operations of a replay of graph `name` that was submitted to `stream`.
void check_replay(const Recording& recording, std::string_view name, StreamState& stream);

}  // namespace detail
}  // namespace capstan

#pragma once

#include <string>
#include <vector>

#include "framework/runtime/access_history.h"
#include "framework/runtime/recording.h"

namespace capstan {

/// Two operations of a recording that use the same memory, at least one writing, and that no chain
/// of edges orders; `first` and `second` are their numbers there.
using OrderFinding = AccessHistory::Conflict;

/// Every place where `recording` lacks an edge, in the order of its operations; empty if a replay
/// gives one result in whatever legal order it runs. Memory counts by address, so a block handed to
/// a new owner before the last use of the old one is found. What follows from another finding is
/// left out: of several operations of one stream the last is named. Scratch memory of libraries is
/// not announced and so not seen. Findings point into `recording`.
[[nodiscard]] std::vector<OrderFinding> check_order(const Recording& recording);

/// "add of stream 3 (at FILE:LINE) writes float32[2, 3] (24 bytes) and mul of stream 5 in net.fc1
/// (at FILE:LINE) reads it, in either order; stream 5 must wait for stream 3 after add
/// (FILE:LINE)".
[[nodiscard]] std::string describe(const Recording& recording, const OrderFinding& finding);

namespace detail {
/// The same for operations from anywhere.
[[nodiscard]] std::string describe_conflict(const RecordedOp& first, const RecordedOp& second,
                                            const AccessHistory::Conflict& conflict);
/// "mul of stream 5 in net.fc1 (at FILE:LINE) reads float32[2, 3] (24 bytes)", with `verb` "reads".
[[nodiscard]] std::string describe_access(const RecordedOp& operation, const Access& access,
                                          const char* verb);
}  // namespace detail

}  // namespace capstan

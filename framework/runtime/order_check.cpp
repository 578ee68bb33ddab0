#include "framework/runtime/order_check.h"

#include <algorithm>

#include "framework/core/error.h"

namespace capstan {
namespace {

using Clock = AccessHistory::Clock;

// Cuts the operations into chains, each ordered in itself: for a recording as captured, its
// streams. Keeps the clocks of operations that others still have to follow.
class Chains {
 public:
  explicit Chains(const Recording& recording)
      : operations_(recording.operations),
        places_(operations_.size()),
        clocks_(operations_.size()),
        followers_(operations_.size(), 0) {
    for (const RecordedOp& operation : operations_) {
      for (const std::int64_t before : operation.after) ++followers_[index(before)];
    }
  }

  struct Place {
    std::size_t chain = 0;
    std::int64_t position = 0;
  };

  // To be called for each operation in turn.
  Place enter(std::size_t number, Clock& clock) {
    const RecordedOp& operation = operations_[number];
    clock.clear();
    std::size_t chain = lengths_.size();
    for (const std::int64_t before : operation.after) {
      const Place& place = places_[index(before)];
      detail::merge(clock, clocks_[index(before)]);
      const bool is_last = lengths_[place.chain] == place.position;
      const bool same_stream = operations_[index(before)].stream == operation.stream;
      if (is_last && (chain == lengths_.size() || same_stream)) chain = place.chain;
    }
    if (chain == lengths_.size()) lengths_.push_back(0);
    const Place place{chain, ++lengths_[chain]};
    if (clock.size() <= chain) clock.resize(chain + 1, 0);
    clock[chain] = place.position;
    places_[number] = place;
    if (followers_[number] != 0) clocks_[number] = clock;
    for (const std::int64_t before : operation.after) {
      if (--followers_[index(before)] == 0) clocks_[index(before)] = {};
    }
    return place;
  }

 private:
  static std::size_t index(std::int64_t number) { return static_cast<std::size_t>(number); }

  const std::vector<RecordedOp>& operations_;
  std::vector<Place> places_;
  std::vector<Clock> clocks_;
  std::vector<std::int64_t> followers_;  // that have not been entered
  std::vector<std::int64_t> lengths_;
};

bool uses_several_streams(const Recording& recording) {
  return std::any_of(recording.operations.begin(), recording.operations.end(),
                     [&](const RecordedOp& operation) {
                       return operation.stream != recording.operations.front().stream;
                     });
}

// With its only edge to the one before, each operation is ordered after all before it.
bool is_one_chain(const Recording& recording) {
  for (std::size_t i = 1; i < recording.operations.size(); ++i) {
    const std::vector<std::int64_t>& after = recording.operations[i].after;
    if (std::find(after.begin(), after.end(), static_cast<std::int64_t>(i) - 1) == after.end()) {
      return false;
    }
  }
  return true;
}

std::string line_of(const RecordedOp& operation) {
  if (operation.where.line() == 0) return "unknown line";
  return detail::concat(operation.where.file_name(), ':', operation.where.line());
}

std::string who(const RecordedOp& operation) {
  return detail::concat(operation.name, " of stream ", operation.stream,
                        operation.graph.empty() ? "" : " in graph \"" + operation.graph + '"',
                        operation.module.empty() ? "" : " in " + operation.module, " (at ",
                        line_of(operation), ')');
}

std::string what(const Access& access) {
  if (access.strides.empty() && access.shape.empty()) {
    return detail::concat(access.bytes, " bytes at ", access.address);
  }
  return detail::concat(access.dtype, access.shape, " (", access.bytes, " bytes)");
}

}  // namespace

std::vector<OrderFinding> check_order(const Recording& recording) {
  std::vector<OrderFinding> findings;
  if (!uses_several_streams(recording) && is_one_chain(recording)) return findings;

  Chains chains(recording);
  AccessHistory history;
  Clock clock;
  for (std::size_t i = 0; i < recording.operations.size(); ++i) {
    const RecordedOp& operation = recording.operations[i];
    const Chains::Place place = chains.enter(i, clock);
    for (const OrderFinding& finding : history.add({.number = static_cast<std::int64_t>(i),
                                       .chain = place.chain,
                                       .position = place.position,
                                       .reads = operation.reads,
                                       .writes = operation.writes},
                                                   clock)) {
      findings.push_back(finding);
    }
  }
  return findings;
}

std::string describe(const Recording& recording, const OrderFinding& finding) {
  return detail::describe_conflict(recording.operations[static_cast<std::size_t>(finding.first)],
                                   recording.operations[static_cast<std::size_t>(finding.second)],
                                   finding);
}

std::string detail::describe_access(const RecordedOp& operation, const Access& access,
                                    const char* verb) {
  return detail::concat(who(operation), ' ', verb, ' ', what(access));
}

std::string detail::describe_conflict(const RecordedOp& first, const RecordedOp& second,
                                      const AccessHistory::Conflict& conflict) {
  const Access& before = *conflict.first_access;
  const Access& after = *conflict.second_access;
  const bool reused =
      before.owner != after.owner && before.owner != nullptr && after.owner != nullptr;
  std::string text =
      detail::concat(who(first), conflict.first_writes ? " writes " : " reads ", what(before),
                     " and ", who(second), conflict.second_writes ? " writes " : " reads ");
  if (reused) {
    text += what(after) + " in the same memory, which was reused too early";
  } else if (before.address == after.address && before.bytes == after.bytes) {
    text += "it";
  } else {
    text += what(after) + " of it";
  }
  text += "; ";
  if (first.stream == second.stream) {
    return text +
           detail::concat(second.name, " must come after ", first.name, " (", line_of(first), ')');
  }
  return text + detail::concat("stream ", second.stream, " must wait for stream ", first.stream,
                               " after ", first.name, " (", line_of(first), ')');
}

}  // namespace capstan

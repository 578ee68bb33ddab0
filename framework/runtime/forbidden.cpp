#include "framework/runtime/forbidden.h"

#include <array>
#include <string>
#include <thread>

#include "framework/core/error.h"
#include "framework/runtime/capture_session.h"

namespace capstan {
namespace {

constexpr const char* kNothingRuns = "nothing runs before a replay";
constexpr const char* kNeedsValues = "it needs the values on the host, and nothing has run yet";
constexpr const char* kReadLater = "keep them on the device, or read them after the replay";
constexpr const char* kDrawnByReplays =
    "the numbers of a capture are drawn by its replays, from where the generator then stands";
constexpr const char* kSeedBetween = "call it before the capture or between replays";
constexpr const char* kSetAgain = "every replay would set the same value again";
constexpr const char* kSetBetween = "call it between replays, which see the change";

using enum Forbidden;

constexpr std::array kTable = {
    ForbiddenCall{item, "item", kNeedsValues, kReadLater, true},
    ForbiddenCall{to_vector, "to_vector", kNeedsValues, kReadLater, true},
    ForbiddenCall{to_string, "to_string",
                  "printing needs the values on the host, and nothing has run yet",
                  "print after the replay, or describe(tensor) for shape and dtype", true},
    ForbiddenCall{from_vector, "from_vector", "a replay would not copy the host's values again",
                  "make the tensor before the capture", true},
    ForbiddenCall{copy_across, "copy between host and device",
                  "a replay would not see the host's memory of that time",
                  "copy before the capture or after the replay, or from a PinnedBuffer", true},
    ForbiddenCall{grad_check, "grad_check", kNeedsValues, "check gradients outside of the capture",
                  true},
    ForbiddenCall{grad_grad_check, "grad_grad_check", kNeedsValues,
                  "check gradients outside of the capture", true},
    ForbiddenCall{step_count, "step_count", kNeedsValues, "read it between replays", true},
    ForbiddenCall{synchronize, "synchronize", kNothingRuns, "end the capture first", true},
    ForbiddenCall{stream_synchronize, "stream.synchronize", kNothingRuns, "end the capture first",
                  true},
    ForbiddenCall{stream_query, "stream.query", kNothingRuns, "end the capture first", true},
    ForbiddenCall{event_query, "event.query", kNothingRuns, "query it after the capture", true},
    ForbiddenCall{event_synchronize, "event.synchronize", kNothingRuns,
                  "wait for it after the capture", true},
    ForbiddenCall{event_elapsed_ms, "event.elapsed_ms", kNothingRuns,
                  "read the time after the capture", true},
    ForbiddenCall{wait_event_across, "stream.wait_event across kinds of device",
                  "the host has to wait for it, and nothing runs before a replay",
                  "wait for it before the capture", true},
    ForbiddenCall{manual_seed, "manual_seed", kDrawnByReplays, kSeedBetween, false},
    ForbiddenCall{generator_manual_seed, "generator.manual_seed", kDrawnByReplays, kSeedBetween,
                  false},
    ForbiddenCall{generator_set_state, "generator.set_state",
                  "a state saved outside of the capture would be the same in every replay",
                  "set one that state() gave in a capture, or set it between replays", false},
    ForbiddenCall{set_learning_rate, "set_learning_rate", kSetAgain, kSetBetween, false},
    ForbiddenCall{set_momentum, "set_momentum", kSetAgain, kSetBetween, false},
    ForbiddenCall{set_weight_decay, "set_weight_decay", kSetAgain, kSetBetween, false},
    ForbiddenCall{set_betas, "set_betas", kSetAgain, kSetBetween, false},
    ForbiddenCall{set_eps, "set_eps", kSetAgain, kSetBetween, false},
    ForbiddenCall{set_option, "set_option", kSetAgain, kSetBetween, false},
    ForbiddenCall{add_param_group, "add_param_group", "every replay would leave the group out",
                  "add it before the capture", false},
    ForbiddenCall{clip_grad_norm, "clip_grad_norm_ with error_if_nonfinite", kNeedsValues,
                  "leave error_if_nonfinite out, and read the norm after the replay", true},
    ForbiddenCall{scheduler_step, "scheduler.step", "every replay would set the same rates again",
                  kSetBetween, false},
    ForbiddenCall{set_decay, "set_decay", kSetAgain, kSetBetween, false},
    ForbiddenCall{set_scale, "set_scale", kSetAgain, kSetBetween, false},
    ForbiddenCall{load_state_dict, "load_state_dict", "every replay would load the values again",
                  "load before the capture", false},
    ForbiddenCall{module_to, "to", "a replay would not move anything",
                  "move the module before the capture", false},
    ForbiddenCall{data_loader, "data_loader", "a replay would not fetch the next batch",
                  "loop outside and copy each batch into the inputs of the graph", false},
    ForbiddenCall{pool_guard, "PoolGuard", "a capture allocates from its own pool",
                  "pass the pool to the capture: {.pool = pool}", false},
    ForbiddenCall{capture, "capture", "a capture cannot begin inside another",
                  "end that capture first", false},
    ForbiddenCall{captured_step, "captured step",
                  "a captured step inside a capture is not supported",
                  "call it after the capture, or capture its function itself", false},
    ForbiddenCall{make_graphed_callables, "make_graphed_callables",
                  "a capture inside a capture is not supported",
                  "graph the callables before the capture", false},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kTable.size(); ++i) {
    if (static_cast<std::size_t>(kTable[i].call) != i) return false;
  }
  return true;
}
static_assert(in_order() && kTable.size() == static_cast<std::size_t>(make_graphed_callables) + 1,
              "each enumerator needs its row, in the same order");

const char* word_for(CaptureErrorMode mode) noexcept {
  switch (mode) {
    case CaptureErrorMode::global: return "global";
    case CaptureErrorMode::thread_local_: return "thread-local";
    case CaptureErrorMode::relaxed: return "relaxed";
  }
  return "";
}

std::string title(const ForbiddenCall& row, std::string_view name) {
  return name.empty() ? std::string(row.operation)
                      : detail::concat(row.operation, " \"", name, '"');
}

[[noreturn]] void refuse_inside(const ForbiddenCall& row, std::string_view name,
                                const CaptureStatus& capture) {
  throw CaptureError(detail::concat(title(row, name), ": not possible while ", capture.device,
                                    " captures, as operation number ", capture.operations + 1,
                                    " of the recording: ", row.reason, "; ", row.remedy));
}

[[noreturn]] void refuse_beside(const ForbiddenCall& row, std::string_view name,
                                const CaptureStatus& capture) {
  const bool is_own = capture.thread == std::this_thread::get_id();
  std::string since;
  if (capture.begun.line() != 0) {
    since =
        detail::concat(", begun at ", capture.begun.file_name(), ":", capture.begun.line(), ",");
  }
  throw CaptureError(detail::concat(
      title(row, name), ": not possible while ", is_own ? "this thread, " : "thread ",
      capture.thread, is_own ? "," : "", " captures on ", capture.device, since, " in the ",
      word_for(capture.mode), " error mode: ",
      is_own ? "there the capturing thread must not wait for the device or ask it, on any stream"
             : "there no thread may wait for the device or ask it",
      "; do so after that capture, or capture with CaptureErrorMode::",
      is_own ? "relaxed" : "thread_local_"));
}

}  // namespace

std::span<const ForbiddenCall> forbidden_table() noexcept { return kTable; }

void refuse_while_capturing(Device device, Forbidden call, std::string_view name) {
  if (detail::active_captures() == 0) [[likely]]
    return;
  refuse_while_capturing(detail::current_stream_state(device), call, name);
}

void refuse_while_capturing(const StreamState& stream, Forbidden call, std::string_view name) {
  if (detail::active_captures() == 0) [[likely]]
    return;
  const ForbiddenCall& row = kTable[static_cast<std::size_t>(call)];
  if (const auto capture = CaptureSession::status_of(stream)) refuse_inside(row, name, *capture);
  if (!row.waits) return;
  if (const auto capture = CaptureSession::status_barring(stream.device)) {
    refuse_beside(row, name, *capture);
  }
}

}  // namespace capstan

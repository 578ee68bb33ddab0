#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "framework/core/device.h"

namespace capstan {

class StreamState;

/// Every entry point that waits for the device, reads device values on the host, or does on the
/// host what no replay would repeat. `forbidden_table` has one row for each.
enum class Forbidden : std::uint8_t {
  item,
  to_vector,
  to_string,
  from_vector,
  copy_across,
  grad_check,
  grad_grad_check,
  step_count,
  synchronize,
  stream_synchronize,
  stream_query,
  event_query,
  event_synchronize,
  event_elapsed_ms,
  wait_event_across,
  manual_seed,
  generator_manual_seed,
  generator_set_state,
  set_learning_rate,
  set_momentum,
  set_weight_decay,
  set_betas,
  set_eps,
  set_option,
  add_param_group,
  clip_grad_norm,
  scheduler_step,
  set_decay,
  set_scale,
  load_state_dict,
  module_to,
  data_loader,
  pool_guard,
  capture,
  captured_step,
  make_graphed_callables,
};

struct ForbiddenCall {
  Forbidden call;
  const char* operation;  ///< as users know it
  const char* reason;     ///< why no capture can contain it
  const char* remedy;
  bool waits;  ///< the host waits for the device or asks it: subject to the error modes of captures
};

/// The rows, in the order of the enumeration.
[[nodiscard]] std::span<const ForbiddenCall> forbidden_table() noexcept;

/// Throws CaptureError if the calling thread's current stream of `device` captures: the message
/// names the operation, the number that it would have had in the recording, reason and remedy. If
/// the call waits for the device, also throws while a capture on this kind of device forbids that
/// to this thread (see CaptureErrorMode): the message names the capturing thread. Whoever offers
/// such a call calls this before doing anything, so that the capture stays valid. `name` is that of
/// the object, if it has one.
void refuse_while_capturing(Device device, Forbidden call, std::string_view name = {});
/// The same for a call on `stream`, whichever stream is current.
void refuse_while_capturing(const StreamState& stream, Forbidden call, std::string_view name = {});

}  // namespace capstan

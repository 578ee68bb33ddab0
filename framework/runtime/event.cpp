#include "framework/runtime/event.h"

#include <utility>

#include "framework/core/error.h"
#include "framework/runtime/capture_session.h"
#include "framework/runtime/forbidden.h"
#include "framework/runtime/runtime.h"

namespace capstan {
namespace {

void check_runs(const char* operation, std::uint64_t capture_id) {
  CAPSTAN_CHECK(capture_id == 0, CaptureError, operation,
                ": the event was recorded in a capture and never runs by itself; record another "
                "one around the replay");
}

}  // namespace

Event::Event(Device device, EventOptions options)
    : device_(device),
      native_(runtime(device).create_event(options.timing)),
      timing_(options.timing) {}

Event::~Event() {
  if (native_ != nullptr) runtime(device_).destroy_event(native_);
}

Event::Event(Event&& other) noexcept { *this = std::move(other); }

Event& Event::operator=(Event&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(native_, other.native_);
  std::swap(timing_, other.timing_);
  std::swap(recorded_, other.recorded_);
  std::swap(capture_id_, other.capture_id_);
  std::swap(clock_, other.clock_);
  return *this;
}

void Event::record(const Stream& stream, Where where) {
  const CallSite site(where);
  CAPSTAN_CHECK(stream.device() == device_, DeviceError, "event.record: the event is of ", device_,
                " and the stream of ", stream.device());
  stream.state().runtime.record_event(native_, stream.state());
  recorded_ = true;
  CaptureSession* const session = stream.state().session();
  capture_id_ = session != nullptr ? session->id() : 0;
  if (session != nullptr) {
    clock_ = session->mark(stream.state());
  } else {
    clock_.clear();
  }
}

bool Event::query(Where where) const {
  const CallSite site(where);
  refuse_while_capturing(device_, Forbidden::event_query);
  check_runs("event.query", capture_id_);
  return detail::is_done(*this);
}

void Event::synchronize(Where where) const {
  const CallSite site(where);
  refuse_while_capturing(device_, Forbidden::event_synchronize);
  check_runs("event.synchronize", capture_id_);
  detail::wait_for(*this);
}

bool detail::is_done(const Event& event) {
  return !event.recorded_ || runtime(event.device_).event_done(event.native_);
}

void detail::wait_for(const Event& event) {
  if (event.recorded_) runtime(event.device_).synchronize_event(event.native_);
}

float Event::elapsed_ms(const Event& start, Where where) const {
  const CallSite site(where);
  refuse_while_capturing(device_, Forbidden::event_elapsed_ms);
  CAPSTAN_CHECK(timing_ && start.timing_, StateError,
                "event.elapsed_ms: both events must be made with {.timing = true}");
  CAPSTAN_CHECK(recorded_ && start.recorded_ && capture_id_ == 0 && start.capture_id_ == 0,
                StateError, "event.elapsed_ms: both events must be recorded outside of a capture");
  return runtime(device_).elapsed_ms(start.native_, native_);
}

}  // namespace capstan

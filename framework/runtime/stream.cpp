#include "framework/runtime/stream.h"

#include <array>
#include <mutex>

#include "framework/core/error.h"
#include "framework/runtime/capture_session.h"
#include "framework/runtime/event.h"
#include "framework/runtime/faults.h"
#include "framework/runtime/forbidden.h"
#include "framework/runtime/runtime.h"

namespace capstan {
namespace {

using PerDevice = std::array<std::array<StreamState*, kMaxDevices>, 2>;

// Null means the default stream. StreamGuard keeps what it puts here alive.
constinit thread_local PerDevice current_streams{};

// Public functions take any device; what is not one fails in `runtime`.
Device checked(Device device) {
  if (device.index < 0 || device.index >= kMaxDevices) (void)runtime(device);
  return device;
}

StreamState*& current_slot(Device device) {
  return current_streams[static_cast<std::size_t>(device.type)]
                        [static_cast<std::size_t>(device.index)];
}

std::uint64_t next_stream_id() noexcept {
  static constinit std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

StreamState& default_stream_state(Device device) {
  struct Defaults {
    std::mutex mutex;
    std::array<std::array<std::atomic<StreamState*>, kMaxDevices>, 2> states{};
  };
  static auto* const defaults = new Defaults;  // outlives every static tensor
  auto& slot =
      defaults
          ->states[static_cast<std::size_t>(device.type)][static_cast<std::size_t>(device.index)];
  if (StreamState* state = slot.load(std::memory_order_acquire)) return *state;
  DeviceRuntime& owner = runtime(device);
  const std::lock_guard lock(defaults->mutex);
  if (slot.load(std::memory_order_relaxed) == nullptr) {
    auto* state = new StreamState(owner, owner.create_stream(0), 0, true);
    state->add_ref();
    slot.store(state, std::memory_order_release);
  }
  return *slot.load(std::memory_order_relaxed);
}

}  // namespace

StreamState::StreamState(DeviceRuntime& owner, void* handle, int level, bool is_default_stream)
    : runtime(owner),
      device(owner.device()),
      native(handle),
      id(next_stream_id()),
      priority(level),
      is_default(is_default_stream),
      defers_(handle != nullptr) {}

StreamState::~StreamState() { runtime.destroy_stream(native); }

Stream Stream::create(Device device, StreamOptions options) {
  DeviceRuntime& owner = capstan::runtime(device);
  return Stream(
      make_ref<StreamState>(owner, owner.create_stream(options.priority), options.priority, false));
}

void Stream::synchronize(Where where) const {
  const CallSite site(where);
  refuse_while_capturing(*state_, Forbidden::stream_synchronize);
  state_->runtime.synchronize_stream(*state_);
  raise_faults(device());
}

bool Stream::query(Where where) const {
  const CallSite site(where);
  refuse_while_capturing(*state_, Forbidden::stream_query);
  return state_->runtime.stream_done(*state_);
}

void Stream::wait_event(const Event& event, Where where) const {
  const CallSite site(where);
  if (!event.recorded_) return;
  CaptureSession* const own = state_->session();
  const bool native = state_->runtime.waits_for(event.device());
  if (event.capture_id_ == 0) {
    CAPSTAN_CHECK(own == nullptr, CaptureError, "stream.wait_event: stream ", id(),
                  " is capturing and the event was recorded outside of the capture; record it on a "
                  "stream of the capture, or wait before the capture begins");
    if (native) {
      state_->runtime.wait_event(*state_, event.native_);
    } else if (!event.device().is_host()) {  // whose events are done
      refuse_while_capturing(event.device(), Forbidden::wait_event_across);
      detail::wait_for(event);
    }
    return;
  }
  CAPSTAN_CHECK(native, CaptureError, "stream.wait_event: stream ", id(), " of ", device(),
                " cannot take part in a capture on ", event.device(),
                "; use a stream of that device");
  const Ref<CaptureSession> session = CaptureSession::find(event.capture_id_);
  CAPSTAN_CHECK(session, CaptureError,
                "stream.wait_event: the capture in which the event was recorded has ended; record "
                "the event again");
  CAPSTAN_CHECK(own == nullptr || own == session.get(), CaptureError, "stream.wait_event: stream ",
                id(), " is part of another capture than the event");
  CAPSTAN_CHECK(!is_default(), CaptureError,
                "stream.wait_event: the default stream cannot take part in a capture; use a stream "
                "made by Stream::create");
  const std::lock_guard entering(state_->entering);
  state_->runtime.wait_event(*state_, event.native_);
  session->join(*state_, event.clock_);
}

void Stream::wait_stream(const Stream& other, Where where) const {
  const CallSite site(where);
  if (*this == other) return;
  CAPSTAN_CHECK(!is_capturing() || other.is_capturing(), CaptureError,
                "stream.wait_stream: stream ", id(), " is capturing and stream ", other.id(),
                " is not part of the capture; fork it first: other.wait_stream(capture_stream)");
  wait_event(other.record_event(where), where);
}

Event Stream::record_event(Where where) const {
  Event event(device());
  event.record(*this, where);
  return event;
}

StreamState& detail::current_stream_state(Device device) {
  StreamState* const state = current_slot(device);
  return state != nullptr ? *state : default_stream_state(device);
}

Stream current_stream(Device device) {
  return Stream(Ref<StreamState>(&detail::current_stream_state(checked(device))));
}

Stream default_stream(Device device) {
  return Stream(Ref<StreamState>(&default_stream_state(checked(device))));
}

StreamGuard::StreamGuard(const Stream& stream)
    : stream_(stream), previous_(current_slot(stream.device())) {
  current_slot(stream.device()) = &stream_.state();
}

StreamGuard::~StreamGuard() { current_slot(stream_.device()) = previous_; }

void synchronize(Device device, Where where) {
  const CallSite site(where);
  refuse_while_capturing(checked(device), Forbidden::synchronize);
  runtime(device).synchronize_device();
  raise_faults(device);
}

}  // namespace capstan

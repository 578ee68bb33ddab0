#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "framework/core/call_site.h"
#include "framework/core/device.h"
#include "framework/core/ref.h"

namespace capstan {

class CaptureSession;
class DeviceRuntime;
class Event;

/// What lies behind a Stream; kernels and runtimes see this, users see Stream.
class StreamState : public RefCounted {
 public:
  StreamState(DeviceRuntime& owner, void* handle, int level, bool is_default_stream);
  ~StreamState() override;

  /// The capture that this stream is part of, or null.
  [[nodiscard]] CaptureSession* session() const noexcept {
    return session_.load(std::memory_order_acquire);
  }
  void set_session(CaptureSession* session) noexcept {
    session_.store(session, std::memory_order_release);
    defers_.store(session != nullptr || native != nullptr, std::memory_order_release);
  }
  /// True unless work runs at once: if the stream is a queue, or takes part in a capture.
  [[nodiscard]] bool defers() const noexcept { return defers_.load(std::memory_order_acquire); }

  DeviceRuntime& runtime;
  const Device device;
  void* const native;  ///< cudaStream_t on the GPU, a queue on an emulated device, else null
  const std::uint64_t id;
  const int priority;
  const bool is_default;
  /// Held while the stream enters a capture, and by who records on it what must not become part of
  /// one: `session` then does not change to a capture meanwhile.
  std::mutex entering;

 private:
  std::atomic<CaptureSession*> session_{nullptr};
  std::atomic<bool> defers_;
};

struct StreamOptions {
  int priority = 0;  ///< 0 is normal, negative is more urgent
};

/// A queue of work on one device, cheap to copy; copies name the same queue. The CPU itself runs
/// work at once, so its streams differ only in what a capture makes of them.
class Stream {
 public:
  /// A new stream. @throws DeviceError if there is no such device.
  [[nodiscard]] static Stream create(Device device, StreamOptions options = {});
  explicit Stream(Ref<StreamState> state) noexcept : state_(std::move(state)) {}

  [[nodiscard]] Device device() const noexcept { return state_->device; }
  [[nodiscard]] std::uint64_t id() const noexcept { return state_->id; }
  [[nodiscard]] int priority() const noexcept { return state_->priority; }
  [[nodiscard]] bool is_default() const noexcept { return state_->is_default; }
  [[nodiscard]] bool is_capturing() const noexcept { return state_->session() != nullptr; }

  /// Blocks the host until all work queued so far is done. @throws CaptureError while capturing,
  /// leaving the capture valid.
  void synchronize(Where where = Where::current()) const;
  /// True if all work queued so far is done. @throws CaptureError while capturing.
  [[nodiscard]] bool query(Where where = Where::current()) const;
  /// Later work on this stream starts after `event`. Waiting for an event of a capture makes this
  /// stream part of that capture (a fork), until the capture ends. For an event of another kind of
  /// device (CPU and GPU) the host waits.
  /// @throws CaptureError  if this stream captures and the event is not part of the same capture,
  ///   or if the host would wait while a capture forbids that.
  void wait_event(const Event& event, Where where = Where::current()) const;
  /// Later work on this stream starts after what `other` has queued so far.
  void wait_stream(const Stream& other, Where where = Where::current()) const;
  [[nodiscard]] Event record_event(Where where = Where::current()) const;

  [[nodiscard]] StreamState& state() const noexcept { return *state_; }
  friend bool operator==(const Stream& a, const Stream& b) noexcept { return a.state_ == b.state_; }

 private:
  Ref<StreamState> state_;
};

/// The stream on which the calling thread's operations on `device` run; at first the default one.
[[nodiscard]] Stream current_stream(Device device);
[[nodiscard]] Stream default_stream(Device device);

/// Makes `stream` current for this thread and its device, and puts the old one back.
class [[nodiscard]] StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream stream_;
  StreamState* previous_;
};

/// Blocks the host until all work on `device` is done, and raises what its kernels reported (a
/// label out of range, say). @throws CaptureError while the calling thread's stream captures.
void synchronize(Device device, Where where = Where::current());

namespace detail {
/// As `current_stream`, without touching a reference count.
[[nodiscard]] StreamState& current_stream_state(Device device);
}  // namespace detail

}  // namespace capstan

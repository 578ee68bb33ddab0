#pragma once

#include <cstdint>
#include <vector>

#include "framework/core/call_site.h"
#include "framework/core/device.h"
#include "framework/core/ref.h"
#include "framework/runtime/stream.h"

namespace capstan {

struct EventOptions {
  bool timing = false;  ///< lets `elapsed_ms` read it
};

class Event;

namespace detail {
/// `query` and `synchronize` for the library's own waits, which no capture refuses. The event must
/// have been recorded outside of captures.
[[nodiscard]] bool is_done(const Event& event);
void wait_for(const Event& event);
}  // namespace detail

/// A point in a stream's work, to wait for. Move-only.
class Event {
 public:
  explicit Event(Device device, EventOptions options = {});
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  [[nodiscard]] Device device() const noexcept { return device_; }
  /// Marks the work that `stream` has queued so far; recording again moves the mark.
  void record(const Stream& stream, Where where = Where::current());
  /// True if everything before the mark is done, or if it was never recorded.
  /// @throws CaptureError  if it was recorded in a capture, or while one runs on this thread.
  [[nodiscard]] bool query(Where where = Where::current()) const;
  void synchronize(Where where = Where::current()) const;
  /// Milliseconds from `start` to this event, both recorded, done and made with `timing`.
  [[nodiscard]] float elapsed_ms(const Event& start, Where where = Where::current()) const;

 private:
  friend class Stream;
  friend bool detail::is_done(const Event& event);
  friend void detail::wait_for(const Event& event);

  Device device_;
  void* native_ = nullptr;
  bool timing_ = false;
  bool recorded_ = false;
  std::uint64_t capture_id_ = 0;     // 0: recorded outside of any capture
  std::vector<std::int64_t> clock_;  // what the stream had seen of each member at the mark
};

}  // namespace capstan

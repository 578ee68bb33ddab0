#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "framework/core/ref.h"
#include "framework/runtime/recording.h"
#include "framework/runtime/runtime.h"
#include "framework/runtime/stream.h"

namespace capstan {

/// Work that each replay does first, on the replay's stream: a generator hands its numbers over.
class ReplayPrologue : public RefCounted {
 public:
  virtual void before_replay(StreamState& stream) = 0;
  /// The replay is itself captured, on `stream`, which is current: records what does the same in
  /// each replay of that capture.
  virtual void record_replay(StreamState& stream) = 0;
  /// The capture is about to end. @throws CaptureError  if it must not, as things stand.
  virtual void capture_ends() {}
};

/// What a finished capture hands to its graph.
struct CaptureResult {
  Ref<NativeGraph> graph;
  Recording recording;
  std::vector<Ref<ReplayPrologue>> prologues;
  std::vector<Ref<const RefCounted>> retained;  ///< foreign storages that the graph reads or writes
  Ref<RefCounted> newborns;                     ///< see CaptureSession::newborns; may be null
};

struct CaptureRequest {
  std::uint64_t pool = 0;  ///< private pool of the capture's allocations; never 0
  CaptureErrorMode mode = CaptureErrorMode::relaxed;
};

/// What a refusal tells about a capture.
struct CaptureStatus {
  Device device;
  CaptureErrorMode mode = CaptureErrorMode::global;
  std::thread::id thread;  ///< that began it
  Where begun{};           ///< the user's line that began it
  std::int64_t operations = 0;
};

/// One capture, from begin to end: which streams take part, what was recorded, which pool its
/// allocations come from. Streams point at it while they take part. All functions but `begin` are
/// called by the threads that submit work to it; they are serialised by a mutex.
class CaptureSession : public RefCounted {
 public:
  /// Begins a capture on `origin`. @throws CaptureError if `origin` is its device's default stream
  /// or already captures; nothing changed then. Work submitted from here on is recorded, not run.
  [[nodiscard]] static Ref<CaptureSession> begin(const Stream& origin, CaptureRequest request);

  /// Ends the capture and leaves every stream as it was, also when it throws.
  /// @throws CaptureError  if a forked stream was not joined (named with its last operation), if
  ///   another stream than the origin is current, or if the capture was invalidated.
  [[nodiscard]] CaptureResult finish();
  /// Ends the capture and drops what it recorded. Does nothing if it already ended.
  /// @return what was wrong with the capture itself (a stream that was not joined, say), or "".
  std::string abandon() noexcept;

  ~CaptureSession() override;

  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] std::uint64_t pool() const noexcept { return request_.pool; }
  [[nodiscard]] const Stream& origin() const noexcept { return origin_; }
  [[nodiscard]] CaptureErrorMode mode() const noexcept { return request_.mode; }
  [[nodiscard]] bool active() const noexcept { return active_; }
  [[nodiscard]] RefCounted* builder() const noexcept { return builder_.get(); }
  [[nodiscard]] std::int64_t operation_count() const;

  /// Appends an operation; `name`, accesses and detail come from the caller, the rest from context.
  void announce(const char* name, StreamState& stream, std::vector<Access> reads,
                std::vector<Access> writes, std::string detail);

  /// Appends the operations of a graph that is replayed into this capture: one after the other, as
  /// one stretch of work on `stream`. Their owners must be retained already.
  void announce_replay(std::vector<RecordedOp> operations, StreamState& stream);

  /// The prologue registered under `key`, or null.
  [[nodiscard]] ReplayPrologue* find_prologue(const void* key) const;
  void add_prologue(const void* key, Ref<ReplayPrologue> prologue);
  /// Keeps `object` until the graph dies.
  void retain(Ref<const RefCounted> object);

  /// The list of what this capture made, kept for higher layers; `make` makes it at the first call.
  [[nodiscard]] Ref<RefCounted> newborns(Ref<RefCounted> (*make)());

  /// A place in the recorded order: what `member` (a stream that takes part) had done at `count`.
  struct Position {
    std::size_t member = 0;
    std::int64_t count = 0;
  };
  /// Where `stream`, which takes part, stands now.
  [[nodiscard]] Position position(const StreamState& stream) const;
  /// True if all that led to `place` comes before the next work of the stream with this id.
  [[nodiscard]] bool precedes(Position place, std::uint64_t stream) const;

  /// The streams that forked off and did not come back, for a runtime that must join them before
  /// it can end a capture that is given up.
  void visit_strays(const std::function<void(StreamState&)>& visit) const;

  // Membership, called by Stream and Event.
  [[nodiscard]] std::vector<std::int64_t> mark(StreamState& stream);
  void join(StreamState& stream, std::span<const std::int64_t> clock);
  [[nodiscard]] static Ref<CaptureSession> find(std::uint64_t id);

  /// The capture that `stream` takes part in, seen from any thread.
  [[nodiscard]] static std::optional<CaptureStatus> status_of(const StreamState& stream);
  /// A capture whose error mode forbids the calling thread to wait for devices of this type or ask
  /// them: one in the global mode, or one that this thread began and that is not relaxed.
  [[nodiscard]] static std::optional<CaptureStatus> status_barring(Device device);
  /// A capture that this thread began, and whose stream is still current, on another device.
  [[nodiscard]] static std::optional<CaptureStatus> status_beside(Device device);

 private:
  struct Member;
  struct State;
  CaptureSession(const Stream& origin, CaptureRequest request);
  void leave_streams() noexcept;
  [[nodiscard]] std::string unjoined() const;
  [[nodiscard]] CaptureStatus status() const;

  const std::uint64_t id_;
  const Stream origin_;
  const CaptureRequest request_;
  const std::thread::id thread_ = std::this_thread::get_id();
  const Where begun_ = detail::call_context.where;
  bool active_ = false;
  Ref<RefCounted> builder_;
  std::unique_ptr<State> state_;
};

/// Throws CaptureError if the calling thread captures on one device, and `operation` is about to
/// run on the current stream of another one, `device`, that is no part of a capture: the graph
/// would lack it. The host's own work is fine, and so is what the host only reads.
void refuse_another_device(const char* operation, Device device);

/// True if the calling thread's current stream of `device` captures.
[[nodiscard]] bool is_current_stream_capturing(Device device = Device::cpu());

/// Hears of every capture that has ended, also of those that failed.
class CaptureObserver {
 public:
  /// Its streams no longer capture; `session` may still be asked for its order.
  virtual void capture_ended(const CaptureSession& session) noexcept = 0;

 protected:
  ~CaptureObserver() = default;
};

namespace detail {
/// Number of captures in progress in the process; a cheap test before looking closer.
[[nodiscard]] int active_captures() noexcept;
void add_capture_observer(CaptureObserver* observer);
/// Waits for calls of `observer` in progress.
void remove_capture_observer(CaptureObserver* observer) noexcept;
}  // namespace detail

}  // namespace capstan

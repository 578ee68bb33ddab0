#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/core/ref.h"
#include "framework/memory/block_pool.h"
#include "framework/runtime/capture_session.h"
#include "framework/runtime/stream.h"

namespace capstan {

/// Blocks that other streams than their own use, and when they may be handed out again after their
/// free:
/// - outside of a capture, when an event that the free records on each of those streams is done;
/// - in the capture whose pool they are of, when the recorded order puts every use before the next
///   work of the block's own stream; at the end of the capture in any case, since replays of a pool
///   follow one another;
/// - a block from elsewhere that a capturing stream uses waits for the end of that capture first.
/// No function that is noexcept needs host memory. Not thread-safe: the allocator's lock is held.
class DeferredFrees {
 public:
  /// `give_back` gets every block whose last use is over; it must not throw.
  DeferredFrees(DeviceRuntime& runtime, std::function<void(Block*)> give_back);
  ~DeferredFrees();
  DeferredFrees(const DeferredFrees&) = delete;
  DeferredFrees& operator=(const DeferredFrees&) = delete;

  /// All work submitted to `stream` until the free may use the block.
  void add_use(Block& block, StreamState& stream);
  /// The operation that `session` recorded last on `stream` uses the block, which is of its pool.
  void add_operation(Block& block, StreamState& stream, CaptureSession& session);

  /// At the free of a block with uses. True if it may be given back at once; otherwise `give_back`
  /// gets it later.
  [[nodiscard]] bool release(Block& block) noexcept;
  /// Gives back what is done. Asks the device, not while the asking stream captures.
  void poll() noexcept;
  /// Gives back what the order recorded so far has made free for `stream`.
  void advance(const CaptureSession& session, std::uint64_t stream) noexcept;
  void capture_ended(const CaptureSession& session) noexcept;

  [[nodiscard]] bool empty() const noexcept { return blocks_ == 0; }
  /// Of the blocks that are freed and wait.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct Use;
  // The streams that use blocks, and the events at which they no longer do, in order.
  struct Queue {
    Ref<StreamState> stream;
    std::size_t uses = 0;
    Use* first = nullptr;
    Use* last = nullptr;
  };
  using Queues = std::map<std::uint64_t, Queue>;
  // Uses on one member of a capture that one stream has not yet come to follow, as a heap with the
  // earliest on top. There is room for all that may be added.
  struct Waiting {
    std::vector<Use*> heap;
    std::size_t uses = 0;
  };
  using WaitingKey = std::pair<std::uint64_t, std::size_t>;  // waiting stream, member
  struct Capture {
    CaptureSession* session = nullptr;
    std::map<WaitingKey, Waiting> waiting;
  };
  friend struct BlockUses;

  [[nodiscard]] BlockUses& uses_of(Block& block);
  [[nodiscard]] Use& use_on(Block& block, StreamState& stream, CaptureSession* session);
  [[nodiscard]] bool is_ongoing(std::uint64_t capture) const noexcept {
    return captures_.contains(capture);
  }
  void hold(Use& use) noexcept;
  void mark(Use& use) noexcept;
  void wait_in_capture(Use& use) noexcept;
  void settle(Use& use) noexcept;
  [[nodiscard]] bool is_done(Use& use) const noexcept;

  DeviceRuntime& runtime_;
  const std::function<void(Block*)> give_back_;
  std::list<BlockUses> used_;
  Queues queues_;
  std::unordered_map<std::uint64_t, Capture> captures_;  // by session id
  Use* held_ = nullptr;  // freed while their stream captures or is about to, chained by `next`
  std::vector<void*> events_;
  std::size_t event_count_ = 0;
  std::size_t blocks_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace capstan

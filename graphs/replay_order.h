#pragma once

#include <memory>
#include <mutex>

#include "framework/memory/caching_allocator.h"
#include "framework/runtime/event.h"
#include "framework/runtime/stream.h"

namespace capstan {

/// Puts the replays of one pool in one order, whatever streams they run on: graphs that share a
/// pool share memory, and even a single graph must not overtake itself.
class ReplayOrder {
 public:
  /// The order for `pool`: one object for all who use it at a time.
  [[nodiscard]] static std::shared_ptr<ReplayOrder> of(const GraphPool& pool);
  explicit ReplayOrder(Device device) : mark_(device) {}

  /// What is submitted to `stream` while the lock is held comes after all earlier turns. Costs
  /// nothing on the device if the last turn was on this stream. Allocates nothing.
  /// @throws CaptureError  if the stream of the last turn captures now.
  [[nodiscard]] std::unique_lock<std::mutex> take_turn(const Stream& stream);
  /// Blocks until all turns are done. Not while a capture is in progress.
  void wait() noexcept;

 private:
  std::mutex mutex_;
  Ref<StreamState> last_;
  Event mark_;
};

}  // namespace capstan

#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "framework/core/ref.h"
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
  friend class ReplayTurns;

  std::mutex mutex_;
  Ref<StreamState> last_;
  Event mark_;
};

/// Turns in several orders at a time, until it is destroyed. All who take several take them in the
/// same sequence, so none waits for another in a circle. Allocates nothing.
class [[nodiscard]] ReplayTurns {
 public:
  ReplayTurns(std::span<const std::shared_ptr<ReplayOrder>> orders, const Stream& stream);
  ~ReplayTurns() { leave(); }
  ReplayTurns(const ReplayTurns&) = delete;
  ReplayTurns& operator=(const ReplayTurns&) = delete;

 private:
  void leave() noexcept;

  const std::span<const std::shared_ptr<ReplayOrder>> orders_;
  std::size_t taken_ = 0;
};

/// The pools that a graph's replays use, its own and those of the graphs nested in it, and their
/// orders. Keeps all of them in use.
class ReplayPools final : public RefCounted {
 public:
  /// `retained`: what the capture retained, the pools of nested graphs among it.
  ReplayPools(GraphPool own, std::span<const Ref<const RefCounted>> retained);

  [[nodiscard]] const GraphPool& own() const noexcept { return pools_.front(); }
  /// Each once, its own first.
  [[nodiscard]] const std::vector<GraphPool>& all() const noexcept { return pools_; }
  [[nodiscard]] ReplayTurns take_turns(const Stream& stream) const { return {orders_, stream}; }
  /// Blocks until all turns in the own pool's order are done, those of the graph among them. Not
  /// while a capture is in progress.
  void wait() const noexcept { own_order_->wait(); }

 private:
  std::vector<GraphPool> pools_;
  std::shared_ptr<ReplayOrder> own_order_;
  std::vector<std::shared_ptr<ReplayOrder>> orders_;  // sorted: the sequence in which to take turns
};

}  // namespace capstan

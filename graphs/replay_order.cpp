#include "graphs/replay_order.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "framework/core/error.h"
#include "framework/runtime/runtime.h"

namespace capstan {

std::shared_ptr<ReplayOrder> ReplayOrder::of(const GraphPool& pool) {
  struct Registry {
    std::mutex mutex;
    std::unordered_map<std::uint64_t, std::weak_ptr<ReplayOrder>> orders;
  };
  static auto* const registry = new Registry;  // graphs may be static objects

  const std::lock_guard lock(registry->mutex);
  std::erase_if(registry->orders, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<ReplayOrder>& known = registry->orders[pool.id()];
  std::shared_ptr<ReplayOrder> order = known.lock();
  if (!order) {
    order = std::make_shared<ReplayOrder>(pool.device());
    known = order;
  }
  return order;
}

std::unique_lock<std::mutex> ReplayOrder::take_turn(const Stream& stream) {
  std::unique_lock lock(mutex_);
  if (last_.get() == &stream.state()) return lock;
  if (last_) {
    const Stream before(last_);
    // The mark would become part of that capture.
    CAPSTAN_CHECK(!before.is_capturing(), CaptureError, "graph.replay: stream ", before.id(),
                  " of ", before.device(),
                  ", where a graph of this pool ran last, captures now, so stream ", stream.id(),
                  " cannot wait for it; replay after that capture has ended");
    mark_.record(before);
    stream.wait_event(mark_);
  }
  last_ = Ref<StreamState>(&stream.state());
  return lock;
}

void ReplayOrder::wait() noexcept {
  const std::lock_guard lock(mutex_);
  if (!last_) return;
  try {
    last_->runtime.synchronize_stream(*last_);
  } catch (const std::exception&) {
    // What broke the device shows at the next call that may throw.
  }
}

ReplayTurns::ReplayTurns(std::span<const std::shared_ptr<ReplayOrder>> orders, const Stream& stream)
    : orders_(orders) {
  try {
    for (; taken_ < orders_.size(); ++taken_) (void)orders_[taken_]->take_turn(stream).release();
  } catch (...) {
    leave();
    throw;
  }
}

void ReplayTurns::leave() noexcept {
  while (taken_ > 0) orders_[--taken_]->mutex_.unlock();
}

ReplayPools::ReplayPools(GraphPool own, std::span<const Ref<const RefCounted>> retained)
    : own_order_(ReplayOrder::of(own)) {
  pools_.push_back(std::move(own));
  for (const Ref<const RefCounted>& object : retained) {
    const auto* const nested = dynamic_cast<const ReplayPools*>(object.get());
    if (nested == nullptr) continue;
    for (const GraphPool& pool : nested->pools_) {
      if (std::find(pools_.begin(), pools_.end(), pool) == pools_.end()) pools_.push_back(pool);
    }
  }
  for (const GraphPool& pool : pools_) orders_.push_back(ReplayOrder::of(pool));
  std::sort(orders_.begin(), orders_.end());
}

}  // namespace capstan

#include "framework/runtime/emulated_scheduler.h"

#include <algorithm>
#include <utility>

#include "framework/core/error.h"

namespace capstan::emulated {

Queue* Scheduler::make_queue(Device device) {
  queues_.push_back(std::make_unique<Queue>());
  queues_.back()->device = device;
  return queues_.back().get();
}

void Scheduler::destroy(Queue* queue) {
  queue->destroyed = true;
  collect();
}

void Scheduler::collect() {
  std::erase_if(queues_,
                [](const auto& queue) { return queue->destroyed && queue->items.empty(); });
}

Queue* Scheduler::find(std::uint64_t stream) const {
  for (const auto& queue : queues_) {
    if (queue->stream == stream) return queue.get();
  }
  return nullptr;
}

bool Scheduler::idle() const {
  return std::all_of(queues_.begin(), queues_.end(),
                     [](const auto& queue) { return queue->items.empty(); });
}

// One run favours some streams over others throughout, the next gives all the same chance: a stream
// that falls far behind finds what even chances hide.
void Scheduler::begin_run() {
  by_rank_ = draw(2) == 0;
  for (const auto& queue : queues_) {
    if (!queue->items.empty()) queue->rank = random_();
  }
}

bool Scheduler::step() {
  choices_.clear();
  for (const auto& queue : queues_) {
    if (queue->items.empty()) continue;
    Item& head = queue->items.front();
    if (head.kind == Item::Kind::wait && !head.mark->reached) continue;
    if (head.kind == Item::Kind::gate && !*head.gate_is_open) continue;
    if (head.kind == Item::Kind::graph && head.open.empty()) {
      head.open = head.plan->open;
      head.ready = head.plan->first;
      head.left = head.open.size();
    }
    if (by_rank_ && !choices_.empty() && choices_.front().queue->rank < queue->rank) continue;
    if (by_rank_) choices_.clear();
    const std::size_t count = std::max<std::size_t>(1, head.ready.size());
    for (std::size_t i = 0; i < count; ++i) choices_.push_back({queue.get(), i});
  }
  if (choices_.empty()) return false;
  run(choices_[choices_.size() == 1 ? 0 : draw(choices_.size())]);
  return true;
}

void Scheduler::run(const Choice& choice) {
  std::deque<Item>& items = choice.queue->items;
  Item& item = items.front();
  switch (item.kind) {
    case Item::Kind::call: {
      const Item running = std::move(item);  // over even if it throws
      items.pop_front();
      running.call.run();
      return;
    }
    case Item::Kind::graph:
      if (item.left != 0) {
        const std::size_t number = item.ready[choice.ready];
        item.ready.erase(item.ready.begin() + static_cast<std::ptrdiff_t>(choice.ready));
        --item.left;
        for (const std::size_t next : item.plan->followers[number]) {
          if (--item.open[next] == 0) item.ready.push_back(next);
        }
        item.plan->tape->calls()[number].run();
        if (item.left != 0) return;
      }
      break;
    case Item::Kind::record:
      item.mark->reached = true;
      item.mark->time = std::chrono::steady_clock::now();
      break;
    case Item::Kind::wait:
    case Item::Kind::gate: break;
  }
  items.pop_front();
}

void Scheduler::run_until(const std::function<bool()>& done, const std::string& what) {
  if (done()) return;
  begin_run();
  while (!done()) {
    if (step()) continue;
    for (const auto& queue : queues_) {
      if (queue->items.empty() || queue->items.front().kind != Item::Kind::gate) continue;
      throw StateError(detail::concat(what, ": it cannot come to an end, since the gate of stream ",
                                      queue->stream, " of ", queue->device,
                                      " is shut; call gate.open() first"));
    }
    throw StateError(what + ": it cannot come to an end, since streams wait for each other");
  }
  collect();
}

void Scheduler::run_some(std::uint64_t steps) {
  begin_run();
  while (steps != 0 && step()) --steps;
  collect();
}

void Scheduler::drain_device(Device device) {
  run_until(
      [&] {
        return std::all_of(queues_.begin(), queues_.end(), [&](const auto& queue) {
          return queue->items.empty() || queue->device != device;
        });
      },
      detail::concat("synchronize: the work of ", device));
}

}  // namespace capstan::emulated

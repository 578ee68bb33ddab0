#include "framework/memory/deferred_frees.h"

#include <algorithm>
#include <exception>
#include <mutex>

namespace capstan {
namespace {

// The place of a use that reaches up to the free.
constexpr std::int64_t kUntilFree = -1;

}  // namespace

struct DeferredFrees::Use {
  BlockUses* owner = nullptr;
  Queues::iterator queue;
  std::uint64_t capture = 0;   // 0: outside of any
  Waiting* waiting = nullptr;  // in the capture that the block's pool belongs to
  std::size_t member = 0;      // where in that capture
  std::int64_t count = 0;      // and up to what
  void* event = nullptr;
  Use* next = nullptr;
};

struct BlockUses {
  Block* block = nullptr;
  std::vector<DeferredFrees::Use> uses;
  std::size_t open = 0;  // once freed
  std::list<BlockUses>::iterator self;
};

DeferredFrees::DeferredFrees(DeviceRuntime& runtime, std::function<void(Block*)> give_back)
    : runtime_(runtime), give_back_(std::move(give_back)) {}

DeferredFrees::~DeferredFrees() {
  for (const auto& [id, queue] : queues_) {
    for (const Use* use = queue.first; use != nullptr; use = use->next) {
      runtime_.destroy_event(use->event);
    }
  }
  for (void* event : events_) runtime_.destroy_event(event);
}

BlockUses& DeferredFrees::uses_of(Block& block) {
  if (block.uses == nullptr) {
    used_.emplace_front();
    used_.front().block = &block;
    used_.front().self = used_.begin();
    block.uses = &used_.front();
  }
  return *block.uses;
}

DeferredFrees::Use& DeferredFrees::use_on(Block& block, StreamState& stream,
                                          CaptureSession* session) {
  BlockUses& of = uses_of(block);
  const std::uint64_t capture = session != nullptr ? session->id() : 0;
  for (Use& use : of.uses) {
    if (use.queue->first == stream.id && use.capture == capture) return use;
  }
  Use use;
  use.owner = &of;
  use.capture = capture;
  if (session != nullptr) {
    Capture& entry = captures_[capture];
    entry.session = session;
    if (block.captured && block.pool->id() == session->pool()) {
      use.member = session->position(stream).member;
      use.waiting = &entry.waiting[{block.stream, use.member}];
      std::vector<Use*>& heap = use.waiting->heap;
      if (heap.capacity() <= use.waiting->uses) heap.reserve(2 * use.waiting->uses + 8);
    }
  }
  use.queue = queues_.try_emplace(stream.id).first;
  use.queue->second.stream = Ref<StreamState>(&stream);
  of.uses.push_back(use);
  ++use.queue->second.uses;
  if (use.waiting != nullptr) ++use.waiting->uses;
  return of.uses.back();
}

void DeferredFrees::add_use(Block& block, StreamState& stream) {
  use_on(block, stream, stream.session()).count = kUntilFree;
}

void DeferredFrees::add_operation(Block& block, StreamState& stream, CaptureSession& session) {
  Use& use = use_on(block, stream, &session);
  if (use.count != kUntilFree) use.count = session.position(stream).count;
}

bool DeferredFrees::release(Block& block) noexcept {
  BlockUses& of = *block.uses;
  block.awaiting = true;
  ++blocks_;
  bytes_ += block.bytes;
  of.open = of.uses.size() + 1;  // one more, so that it outlives the loop
  for (Use& use : of.uses) {
    if (use.capture != 0 && !is_ongoing(use.capture)) {
      use.waiting = nullptr;
      settle(use);  // ordered by the graph
    } else if (use.waiting != nullptr) {
      wait_in_capture(use);
    } else {
      mark(use);
    }
  }
  if (--of.open != 0) return false;
  --blocks_;
  bytes_ -= block.bytes;
  block.awaiting = false;
  block.uses = nullptr;
  used_.erase(of.self);
  return true;
}

void DeferredFrees::settle(Use& use) noexcept {
  if (use.waiting != nullptr) --use.waiting->uses;
  if (--use.queue->second.uses == 0) queues_.erase(use.queue);
  BlockUses& of = *use.owner;
  if (--of.open != 0) return;
  Block* block = of.block;
  --blocks_;
  bytes_ -= block->bytes;
  block->awaiting = false;
  block->uses = nullptr;
  used_.erase(of.self);
  give_back_(block);
}

void DeferredFrees::hold(Use& use) noexcept {
  use.next = held_;
  held_ = &use;
}

void DeferredFrees::mark(Use& use) noexcept {
  Queue& queue = use.queue->second;
  // Of two threads one may come to begin a capture here; an event must not be recorded into it.
  const std::unique_lock entering(queue.stream->entering, std::try_to_lock);
  if (!entering.owns_lock() || queue.stream->session() != nullptr) return hold(use);
  try {
    if (events_.empty()) {
      events_.reserve(event_count_ + 1);  // so that every event can come back
      events_.push_back(runtime_.create_event(false));
      ++event_count_;
    }
    runtime_.record_event(events_.back(), *queue.stream);
  } catch (const std::exception&) {
    return hold(use);  // the next poll tries again; until then the block is not handed out
  }
  use.event = events_.back();
  events_.pop_back();
  use.next = nullptr;
  (queue.first == nullptr ? queue.first : queue.last->next) = &use;
  queue.last = &use;
}

bool DeferredFrees::is_done(Use& use) const noexcept {
  try {
    return runtime_.event_done(use.event);
  } catch (const std::exception&) {
    return false;  // what broke the device shows at the next call that may throw
  }
}

void DeferredFrees::poll() noexcept {
  for (Use* use = std::exchange(held_, nullptr); use != nullptr;) {
    Use* next = use->next;
    mark(*use);
    use = next;
  }
  for (auto queue = queues_.begin(); queue != queues_.end();) {
    const auto current = queue++;  // settling the last use removes it
    bool more = true;
    while (more && current->second.first != nullptr) {
      Use& use = *current->second.first;
      if (!is_done(use)) break;
      events_.push_back(use.event);
      current->second.first = use.next;
      more = current->second.uses > 1;
      settle(use);
    }
  }
}

void DeferredFrees::wait_in_capture(Use& use) noexcept {
  CaptureSession& session = *captures_.find(use.capture)->second.session;
  if (use.count == kUntilFree) use.count = session.position(*use.queue->second.stream).count;
  if (session.precedes({use.member, use.count}, use.owner->block->stream)) return settle(use);
  std::vector<Use*>& heap = use.waiting->heap;
  heap.push_back(&use);
  std::push_heap(heap.begin(), heap.end(),
                 [](const Use* a, const Use* b) { return a->count > b->count; });
}

void DeferredFrees::advance(const CaptureSession& session, std::uint64_t stream) noexcept {
  const auto capture = captures_.find(session.id());
  if (capture == captures_.end()) return;
  auto& waiting = capture->second.waiting;
  for (auto entry = waiting.lower_bound({stream, 0});
       entry != waiting.end() && entry->first.first == stream; ++entry) {
    std::vector<Use*>& heap = entry->second.heap;
    while (!heap.empty() && session.precedes({entry->first.second, heap.front()->count}, stream)) {
      std::pop_heap(heap.begin(), heap.end(),
                    [](const Use* a, const Use* b) { return a->count > b->count; });
      Use& use = *heap.back();
      heap.pop_back();
      settle(use);
    }
  }
}

void DeferredFrees::capture_ended(const CaptureSession& session) noexcept {
  if (const auto capture = captures_.find(session.id()); capture != captures_.end()) {
    for (auto& [key, waiting] : capture->second.waiting) {
      for (Use* use : waiting.heap) settle(*use);
      waiting.heap.clear();
    }
    captures_.erase(capture);
  }
  poll();
}

}  // namespace capstan

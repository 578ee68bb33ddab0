#include "framework/memory/memory_history.h"

#include <mutex>
#include <set>
#include <utility>

namespace capstan {
namespace {

// Events outlive the caller's name. There are only as many names as operations.
const char* interned(const char* name) {
  static auto* const names = new std::set<std::string>;
  static constinit std::mutex mutex;
  const std::lock_guard lock(mutex);
  return names->insert(name).first->c_str();
}

}  // namespace

void MemoryHistory::start(std::size_t max_events) {
  std::vector<MemoryEvent> ring(max_events);
  detail::memory_histories.fetch_add((max_events != 0) - on(), std::memory_order_relaxed);
  ring_ = std::move(ring);
  sites_.clear();
  count_ = 0;
  began_ = std::chrono::steady_clock::now();
}

void MemoryHistory::push(MemoryEvent event) noexcept {
  event.microseconds = std::chrono::duration_cast<std::chrono::microseconds>(
                           std::chrono::steady_clock::now() - began_)
                           .count();
  event.where = detail::call_context.where;
  ring_[count_ % ring_.size()] = event;
  ++count_;
}

void MemoryHistory::push(const char* action, const Block* block) noexcept {
  const auto found = sites_.find(block);
  push({.action = action,
        .address = block->address,
        .bytes = block->bytes,
        .stream = block->stream,
        .pool = block->pool->id(),
        .operation = found != sites_.end() ? found->second.operation : nullptr});
}

void MemoryHistory::allocated(const Block* block) {
  if (!on()) return;
  sites_[block] = {.operation = nullptr,
                   .module = detail::module_path(),
                   .where = detail::call_context.where,
                   .event = count_};
  push("alloc", block);
}

void MemoryHistory::written(const Block* block, const char* operation) {
  if (!on()) return;
  const auto found = sites_.find(block);
  if (found == sites_.end() || found->second.operation != nullptr) return;
  found->second.operation = interned(operation);
  if (count_ - found->second.event > ring_.size()) return;
  ring_[found->second.event % ring_.size()].operation = found->second.operation;
}

void MemoryHistory::free_requested(const Block* block) noexcept {
  if (on()) push("free_requested", block);
}

void MemoryHistory::free_completed(const Block* block) noexcept {
  if (!on()) return;
  push("free_completed", block);
  sites_.erase(block);
}

void MemoryHistory::segment(const char* action, const void* address, std::size_t bytes,
                            std::uint64_t pool) noexcept {
  if (on()) push({.action = action, .address = address, .bytes = bytes, .pool = pool});
}

void MemoryHistory::out_of_memory(std::size_t bytes) noexcept {
  if (on()) push({.action = "oom", .bytes = bytes});
}

const AllocationSite* MemoryHistory::site(const Block* block) const {
  const auto found = sites_.find(block);
  return found != sites_.end() ? &found->second : nullptr;
}

std::vector<MemoryEvent> MemoryHistory::events() const {
  std::vector<MemoryEvent> events;
  if (!on()) return events;
  const std::uint64_t first = count_ > ring_.size() ? count_ - ring_.size() : 0;
  for (std::uint64_t i = first; i < count_; ++i) events.push_back(ring_[i % ring_.size()]);
  return events;
}

}  // namespace capstan

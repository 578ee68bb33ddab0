#include "autograd/pass_arena.h"

#include <algorithm>

namespace capstan::autograd {

void PassArena::push(std::uint32_t entry) {
  entries[entry].queued = true;
  queue_.emplace_back(entries[entry].node->sequence, entry);
  std::push_heap(queue_.begin(), queue_.end());
}

std::uint32_t PassArena::pop() {
  std::pop_heap(queue_.begin(), queue_.end());
  const std::uint32_t entry = queue_.back().second;
  queue_.pop_back();
  return entry;
}

void PassArena::clear() noexcept {
  for (const PassEntry& entry : entries) table_[entry.bucket] = {};
  entries.clear();
  grads.clear();
  input_grads.clear();
  queue_.clear();
}

void PassArena::grow() {
  table_.assign(table_.size() * 2, {});
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    const std::size_t bucket = bucket_of(entries[i].node);
    table_[bucket] = {entries[i].node, i};
    entries[i].bucket = static_cast<std::uint32_t>(bucket);
  }
}

}  // namespace capstan::autograd

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/node.h"

namespace capstan::autograd {

/// What a backward pass knows of one node.
struct PassEntry {
  Node* node;
  std::uint32_t first_grad;  ///< its output gradients start here in `PassArena::grads`
  std::uint32_t bucket;
  bool queued = false;
  bool captured = false;  ///< `grad` was asked for the gradient of one of its outputs
  bool runs = true;       ///< its backward leads somewhere
};

/// The memory of one pass. It lives outside of the nodes, so passes over shared nodes, nested or on
/// several threads, do not meet; a thread keeps it for its next pass.
class PassArena {
 public:
  PassArena() : table_(kSmallestTable) {}

  /// Index of the entry of `node`; the second is true if it is new.
  std::pair<std::uint32_t, bool> find_or_add(Node& node) {
    const std::size_t bucket = bucket_of(&node);
    if (table_[bucket].node != nullptr) return {table_[bucket].entry, false};
    const auto entry = static_cast<std::uint32_t>(entries.size());
    entries.push_back(
        {&node, static_cast<std::uint32_t>(grads.size()), static_cast<std::uint32_t>(bucket)});
    grads.resize(grads.size() + node.outputs);
    table_[bucket] = {&node, entry};
    if (entries.size() * 2 > table_.size()) grow();
    return {entry, true};
  }
  [[nodiscard]] PassEntry* find(const Node& node) {
    const Bucket& bucket = table_[bucket_of(&node)];
    return bucket.node == nullptr ? nullptr : &entries[bucket.entry];
  }

  /// The reached node that was made last waits on top: every node that contributes to its gradients
  /// was made later still, and has run.
  void push(std::uint32_t entry);
  [[nodiscard]] std::uint32_t pop();
  [[nodiscard]] bool idle() const noexcept { return queue_.empty(); }

  /// Costs what was used, not what the largest pass used.
  void clear() noexcept;

  std::vector<PassEntry> entries;
  std::vector<Tensor> grads;
  std::vector<Tensor> input_grads;
  std::vector<std::uint8_t> needed;

 private:
  struct Bucket {
    const Node* node = nullptr;
    std::uint32_t entry = 0;
  };
  static constexpr std::size_t kSmallestTable = 64;

  /// Where `node` is, or belongs; the table has a power of two of buckets, half of them empty.
  [[nodiscard]] std::size_t bucket_of(const Node* node) const noexcept {
    const std::uint64_t key = reinterpret_cast<std::uintptr_t>(node);
    std::size_t bucket = (key * 0x9E3779B97F4A7C15u) >> 32 & (table_.size() - 1);
    while (table_[bucket].node != nullptr && table_[bucket].node != node) {
      bucket = (bucket + 1) & (table_.size() - 1);
    }
    return bucket;
  }
  void grow();

  std::vector<Bucket> table_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> queue_;
};

/// Lends the thread's arena, or a new one to a pass within a pass.
class ArenaLease {
 public:
  ArenaLease() : arena_(spare() ? std::move(spare()) : std::make_unique<PassArena>()) {}
  ~ArenaLease() {
    arena_->clear();
    spare() = std::move(arena_);
  }
  ArenaLease(const ArenaLease&) = delete;
  ArenaLease& operator=(const ArenaLease&) = delete;
  PassArena& operator*() const noexcept { return *arena_; }

 private:
  static std::unique_ptr<PassArena>& spare() noexcept {
    thread_local std::unique_ptr<PassArena> arena;
    return arena;
  }

  std::unique_ptr<PassArena> arena_;
};

}  // namespace capstan::autograd

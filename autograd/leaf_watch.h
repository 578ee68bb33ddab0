#pragma once

#include <unordered_set>
#include <utility>
#include <vector>

#include "autograd/node.h"

namespace capstan::autograd {

/// Notes which leaves' gradients this thread uses or replaces while it lives, and what they were
/// before: a recorded step must put gradients where the recorded run found and left them.
class LeafWatch {
 public:
  struct Touched {
    Ref<LeafNode> leaf;
    Tensor before;  ///< the gradient at the first touch; undefined if there was none
    bool uses_it;   ///< it was read or added to, and not first replaced
  };

  LeafWatch() noexcept : outer_(std::exchange(current_, this)) {}
  ~LeafWatch() { current_ = outer_; }
  LeafWatch(const LeafWatch&) = delete;
  LeafWatch& operator=(const LeafWatch&) = delete;

  [[nodiscard]] const std::vector<Touched>& touched() const noexcept { return touched_; }
  /// True while one lives on the calling thread.
  [[nodiscard]] static bool is_active() noexcept { return current_ != nullptr; }

  // Called by LeafNode, before it does so.
  static void reading(const LeafNode& leaf) {
    if (current_ != nullptr) [[unlikely]]
      current_->note(leaf, true);
  }
  static void replacing(const LeafNode& leaf) {
    if (current_ != nullptr) [[unlikely]]
      current_->note(leaf, false);
  }

 private:
  void note(const LeafNode& leaf, bool uses_it) {
    if (outer_ != nullptr) outer_->note(leaf, uses_it);
    if (!known_.insert(&leaf).second) return;
    // Reading it here is no use of it: the leaf is known by now.
    touched_.push_back({Ref<LeafNode>(const_cast<LeafNode*>(&leaf)), leaf.get_grad(), uses_it});
  }

  static inline constinit thread_local LeafWatch* current_ = nullptr;

  LeafWatch* outer_;
  std::unordered_set<const LeafNode*> known_;
  std::vector<Touched> touched_;
};

}  // namespace capstan::autograd

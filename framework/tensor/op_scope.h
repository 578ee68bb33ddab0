#pragma once

#include <initializer_list>
#include <span>

#include "framework/memory/memory_history.h"
#include "framework/runtime/capture_session.h"
#include "framework/runtime/emulated_checks.h"
#include "framework/tensor/tensor.h"
#include "framework/tensor/write_journal.h"

namespace capstan {

/// Announces an operation: what it is called, what it reads and writes. One stands at the head of
/// every function in ops/, after its checks and before its first dispatch. It bumps the version of
/// everything written, feeds the capture's recording, an active WriteJournal and the checks of
/// emulated devices, and costs nanoseconds when there is none. Undefined tensors are skipped.
class [[nodiscard]] OpScope {
 public:
  OpScope(const char* name, std::initializer_list<const Tensor*> reads,
          std::initializer_list<const Tensor*> writes)
      : OpScope(name, std::span(reads.begin(), reads.size()),
                std::span(writes.begin(), writes.size())) {}
  OpScope(const char* name, std::span<const Tensor* const> reads,
          std::span<const Tensor* const> writes) {
    if (detail::active_captures() != 0 || WriteJournal::current() != nullptr ||
        detail::memory_histories.load(std::memory_order_relaxed) != 0 ||
        detail::checks_operations.load(std::memory_order_relaxed)) [[unlikely]] {
      announce(name, reads, writes);
    }
    for (const Tensor* tensor : writes) {
      if (tensor->defined()) tensor->storage()->bump_version();
    }
  }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  static void announce(const char* name, std::span<const Tensor* const> reads,
                       std::span<const Tensor* const> writes);
};

}  // namespace capstan

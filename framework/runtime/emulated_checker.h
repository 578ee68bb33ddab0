#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/runtime/access_history.h"
#include "framework/runtime/emulated_memory.h"
#include "framework/runtime/recording.h"

namespace capstan::emulated {

/// Finds races and reads of bytes without a value among operations, in the order in which they are
/// submitted. Not thread-safe: the emulation's lock is held.
class Checker {
 public:
  using Clock = AccessHistory::Clock;

  /// Operations that follow one another: a stream's, or the host's.
  struct Chain {
    std::uint64_t epoch = 0;  // of the Checker that `number` and `clock` are of
    std::size_t number = 0;
    Clock clock;
    std::int64_t last = -1;  // its last operation
  };

  /// Forgets everything.
  void reset(bool order, bool reads);
  [[nodiscard]] bool on() const noexcept { return order_ || reads_; }

  /// Returns what was found anew.
  std::vector<std::string> add(RecordedOp operation, Chain& chain);
  std::vector<std::string> add_on_host(RecordedOp operation);
  /// A copy or fill beneath an operation: what the last operation of the chain did not announce is
  /// taken for an access under its name, or under `name` if it announced none of it.
  void add_raw(const char* name, std::uint64_t stream, const void* read, const void* written,
               std::size_t bytes, Chain& chain);

  /// What a mark in `chain` stands for.
  [[nodiscard]] const Clock& mark(Chain& chain);
  /// What follows in `chain` comes after the mark.
  void wait(Chain& chain, const Clock& mark);
  /// The host has seen that all up to the mark is over.
  void finished(const Clock& mark);

  /// The caching allocator got this back.
  void freed(const void* address, std::size_t bytes);
  /// The memory no longer exists.
  void gone(const void* address, std::size_t bytes) { history_.forget(address, bytes); }

  [[nodiscard]] MemoryMap& memory() noexcept { return memory_; }
  [[nodiscard]] const std::vector<std::string>& reports() const noexcept { return reports_; }
  void clear_reports() { reports_.clear(); }

 private:
  void enter(Chain& chain);
  void check_reads(const RecordedOp& operation, std::vector<std::string>& found) const;
  void prune();

  bool order_ = false;
  bool reads_ = false;
  std::uint64_t epoch_ = 1;
  std::size_t chains_ = 1;  // number 0 is the host
  Chain host_;
  Clock finished_;
  AccessHistory history_;
  std::map<std::int64_t, RecordedOp> operations_;  // that the history refers to, and some more
  std::int64_t next_ = 0;
  std::size_t prune_at_ = 1024;
  MemoryMap memory_;
  std::vector<std::string> reports_;
};

}  // namespace capstan::emulated

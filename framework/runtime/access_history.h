#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "framework/runtime/recording.h"

namespace capstan {

/// True if some byte belongs to both; elements between the strides do not count.
[[nodiscard]] bool overlap(const Access& a, const Access& b);

/// First byte of each dense part of `access`, and the byte behind its last, ascending; the whole
/// stretch for an access of very many parts.
[[nodiscard]] std::vector<std::pair<std::uintptr_t, std::uintptr_t>> runs_of(const Access& access);

/// Which operations used which memory last, to find two that nothing orders. Operations form
/// chains, each ordered in itself; a clock says for each chain how many of its operations are known
/// to be over. Takes memory and time in the order of the accesses, times the chains that meet.
class AccessHistory {
 public:
  using Clock = std::vector<std::int64_t>;

  /// An operation, the `position`th of its chain, from 1 on. Operations come in an order in which
  /// none waits for a later one.
  struct Operation {
    std::int64_t number = 0;  ///< the caller's name for it
    std::size_t chain = 0;
    std::int64_t position = 1;
    std::span<const Access> reads{};  ///< must stay where they are until `clear`
    std::span<const Access> writes{};
  };

  /// Two uses of the same memory, of which at least one writes.
  struct Conflict {
    std::int64_t first = 0;
    std::int64_t second = 0;
    const Access* first_access = nullptr;
    const Access* second_access = nullptr;
    bool first_writes = false;
    bool second_writes = false;
    std::size_t chain = 0;      ///< of the first
    std::int64_t position = 0;  ///< of the first
  };

  /// Adds an operation that comes after what `clock` counts, itself included. Returns its conflicts
  /// with earlier ones, at most one for each chain: with the last operation there, as who waits for
  /// that one waits for the others too.
  [[nodiscard]] std::vector<Conflict> add(const Operation& operation, const Clock& clock);

  /// True if the memory has a use that `clock` does not count.
  [[nodiscard]] bool in_use(const void* address, std::size_t bytes, const Clock& clock) const;
  void clear() noexcept { stretches_.clear(); }
  /// Drops every use that `clock` counts: of those who come after all of it.
  void forget(const Clock& clock);
  /// Drops every use of memory that is gone.
  void forget(const void* address, std::size_t bytes);
  /// Numbers of the operations that are still held, ascending.
  [[nodiscard]] std::vector<std::int64_t> numbers() const;

 private:
  struct Use {
    std::int64_t number;
    std::size_t chain;
    std::int64_t position;
    const Access* access;
    bool writes;
  };
  struct Stretch {
    std::uintptr_t end;
    std::vector<Use> uses;  // those that no later use stands for
  };
  using Stretches = std::map<std::uintptr_t, Stretch>;

  void add(const Use& use, const Clock& clock, std::vector<Conflict>& conflicts);
  void split(std::uintptr_t address);
  void fill_gaps(std::uintptr_t begin, std::uintptr_t end);

  Stretches stretches_;
};

namespace detail {
[[nodiscard]] inline std::int64_t at(const AccessHistory::Clock& clock,
                                     std::size_t chain) noexcept {
  return chain < clock.size() ? clock[chain] : 0;
}
/// Afterwards `clock` counts what either counted.
void merge(AccessHistory::Clock& clock, const AccessHistory::Clock& other);
}  // namespace detail

}  // namespace capstan

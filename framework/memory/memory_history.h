#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "framework/core/call_site.h"
#include "framework/memory/block_pool.h"

namespace capstan {

/// Where a block was allocated.
struct AllocationSite {
  const char* operation = nullptr;  ///< the first one that wrote it; null if none did yet
  std::string module;               ///< "net.fc1", or empty
  Where where{};                    ///< the user's line; line 0 if unknown
  std::uint64_t event = 0;          ///< its number in the history
};

/// One thing that an allocator did.
struct MemoryEvent {
  const char* action =
      "";  ///< alloc, free_requested, free_completed, segment_alloc, segment_map, ...
  const void* address = nullptr;
  std::size_t bytes = 0;
  std::uint64_t stream = 0;
  std::uint64_t pool = 0;
  std::int64_t microseconds = 0;  ///< since recording began
  const char* operation = nullptr;
  Where where{};
};

/// The last events of one allocator, and where its blocks come from. Off at first; then every
/// function costs one comparison. Not thread-safe: the allocator's lock is held.
class MemoryHistory {
 public:
  MemoryHistory() = default;
  ~MemoryHistory() { start(0); }
  MemoryHistory(const MemoryHistory&) = delete;
  MemoryHistory& operator=(const MemoryHistory&) = delete;

  /// Forgets everything and keeps the last `max_events` from here on; 0 ends recording.
  void start(std::size_t max_events);
  [[nodiscard]] bool on() const noexcept { return !ring_.empty(); }

  void allocated(const Block* block);
  /// `operation` wrote the block; the first to do so names its site.
  void written(const Block* block, const char* operation);
  void free_requested(const Block* block) noexcept;
  void free_completed(const Block* block) noexcept;
  void segment(const char* action, const void* address, std::size_t bytes,
               std::uint64_t pool) noexcept;
  void out_of_memory(std::size_t bytes) noexcept;

  /// Null if unknown.
  [[nodiscard]] const AllocationSite* site(const Block* block) const;
  /// Oldest first.
  [[nodiscard]] std::vector<MemoryEvent> events() const;

 private:
  void push(MemoryEvent event) noexcept;
  void push(const char* action, const Block* block) noexcept;

  std::vector<MemoryEvent> ring_;
  std::uint64_t count_ = 0;
  std::chrono::steady_clock::time_point began_;
  std::unordered_map<const Block*, AllocationSite> sites_;
};

namespace detail {
/// Number of histories that are on; operations name their memory only if there are any.
inline constinit std::atomic<int> memory_histories{0};
}  // namespace detail

}  // namespace capstan

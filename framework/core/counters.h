#pragma once

#include <atomic>
#include <cstdint>

namespace capstan {

/// How often this process did the things that a replay must not do, and replayed. They only grow;
/// compare two readings.
struct Counters {
  std::atomic<std::int64_t> dispatches{0};          ///< kernels handed to a device, run or recorded
  std::atomic<std::int64_t> allocations{0};         ///< requests to a caching allocator
  std::atomic<std::int64_t> device_allocations{0};  ///< raw device allocations (cudaMalloc, malloc)
  std::atomic<std::int64_t> replays{0};             ///< graph launches
  /// Tensors given other memory, frozen or unfrozen: steps recorded before must be recorded anew.
  std::atomic<std::int64_t> rebinds{0};
  /// Parameters, buffers, children and hooks that modules were given, and changes of their
  /// train/eval mode: what a recording of a module does not follow.
  std::atomic<std::int64_t> module_changes{0};
};

[[nodiscard]] inline Counters& counters() noexcept {
  static constinit Counters instance;
  return instance;
}

namespace detail {
/// A relaxed bump without a locked instruction would lose counts; with one it costs a few ns.
inline void count(std::atomic<std::int64_t>& counter) noexcept {
  counter.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace detail

}  // namespace capstan

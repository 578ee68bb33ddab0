#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/memory/block_pool.h"
#include "framework/memory/caching_allocator.h"
#include "framework/memory/deferred_frees.h"
#include "framework/memory/memory_history.h"
#include "framework/memory/pinned_allocator.h"
#include "framework/runtime/capture_session.h"

// What CachingAllocator consists of, for its own sources.
namespace capstan {

struct CachingAllocator::Impl final : CaptureObserver {
  struct Pool final : BlockPool {
    Pool(std::uint64_t pool_id, std::string pool_name, PoolStats& total)
        : BlockPool(pool_id, total), name(std::move(pool_name)) {}
    const std::string name;
    std::int64_t use_count = 1;
    std::vector<std::uint64_t> captures;  // sessions in progress that allocate here
    bool release_due = false;             // its last use went, its free pages did not yet
  };

  explicit Impl(DeviceRuntime& device_runtime);
  ~Impl();

  [[nodiscard]] Pool* find(std::uint64_t id) const noexcept;
  /// The pool that serves requests on `stream` now.
  [[nodiscard]] Pool& route(const CaptureSession* session);
  /// Null if memory ran out.
  [[nodiscard]] Block* take(Pool& pool, std::size_t bytes, std::uint64_t stream, bool for_capture);
  /// Adds memory to `pool` that serves the request; false if there is none.
  [[nodiscard]] bool add_memory(Pool& pool, std::size_t bytes, std::uint64_t stream,
                                bool for_capture);
  [[nodiscard]] bool add_segment(Pool& pool, std::size_t bytes, std::uint64_t stream,
                                 bool for_capture);
  [[nodiscard]] bool grow_segment(Pool& pool, BlockPool::Growth growth, std::uint64_t stream,
                                  bool for_capture);
  /// A hole for the request in a new growable segment; null if no addresses are left.
  [[nodiscard]] Block* reserve(Pool& pool, std::size_t bytes, std::uint64_t stream,
                               bool for_capture);
  /// The whole segment, also what is in use.
  void release_segment(const Block* first) noexcept;
  [[nodiscard]] bool within_limit(std::size_t more) const noexcept;
  [[nodiscard]] bool is_due(const Pool& pool) const noexcept;
  void give_back(Block* block) noexcept;
  /// What is free goes to the device, which is done with it.
  void give_back_free_memory(Pool& pool) noexcept;
  [[nodiscard]] bool wait_for_device() noexcept;
  void collect_released() noexcept;
  void capture_ended(const CaptureSession& session) noexcept override;
  [[nodiscard]] AllocatorStats report() const;
  [[nodiscard]] Shortage shortage(std::size_t bytes) const;

  DeviceRuntime& runtime;
  const bool poisons;
  mutable std::mutex mutex;
  PoolStats total;
  std::vector<std::unique_ptr<Pool>> pools;  // the common one first
  DeferredFrees deferred;
  PinnedAllocator pinned;
  MemoryHistory history;
  std::optional<std::size_t> limit;
  const std::size_t page;        // of growable segments; 0: the device has none
  std::size_t device_bytes = 0;  // 0: not asked yet
  bool growable;                 // new segments are, where the device can
  std::vector<std::pair<int, std::function<void(const Shortage&)>>> observers;
  int next_observer = 1;
  bool released_wait = false;  // segments of released pools are due for the device
};

}  // namespace capstan

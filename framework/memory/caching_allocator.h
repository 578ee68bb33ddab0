#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/core/call_site.h"
#include "framework/core/device.h"
#include "framework/core/ref.h"
#include "framework/runtime/runtime.h"
#include "framework/runtime/stream.h"

namespace capstan {

/// A piece of a segment, handed out or free. Fields are the allocator's.
struct Block;
class PinnedAllocator;

/// Byte and count totals of one pool, or of the whole device.
struct PoolStats {
  std::int64_t allocated_bytes = 0;  ///< handed out, rounded sizes
  std::int64_t reserved_bytes = 0;   ///< held from the device
  std::int64_t requested_bytes = 0;  ///< handed out, as asked for
  std::int64_t blocks = 0;           ///< handed out
  std::int64_t segments = 0;         ///< raw allocations and growable segments held
  std::int64_t peak_allocated_bytes = 0;
  std::int64_t peak_reserved_bytes = 0;
};

struct PoolReport {
  std::uint64_t id = 0;  ///< 0: the common pool
  std::string name;
  std::int64_t use_count = 0;  ///< graphs and handles that hold it; 1 for the common pool; at 0 it
                               ///< lives on until its last block is freed
  PoolStats stats;
};

/// Statistics of one device; `total` is always the sum over `pools`, its peaks those of that sum.
struct AllocatorStats {
  PoolStats total;
  std::int64_t awaiting_bytes = 0;  ///< freed, but other streams may still use them; in `allocated`
  std::vector<PoolReport> pools;
};

/// What `empty_cache` did.
struct CacheEmptied {
  std::size_t bytes = 0;  ///< given back to the device
  std::size_t kept_beside =
      0;  ///< kept in the common pool: in segments with live blocks, unless `capturing`
  std::size_t kept_in_pools = 0;  ///< kept: in private pools
  std::size_t pinned = 0;         ///< page-locked host memory given back to the system
  bool capturing = false;         ///< nothing was done, since a capture is in progress
  /// What stayed cached and why, for people; empty if nothing did.
  [[nodiscard]] std::string reason() const;
};

/// What an observer is told when a request cannot be served.
struct Shortage {
  Device device;
  std::size_t requested = 0;
  DeviceMemory memory;
  std::optional<std::size_t> limit;
  AllocatorStats stats;
  std::string message;  ///< of the OutOfMemory that follows
};

/// Caches device memory: blocks are cut from segments, freed blocks merge with their neighbours and
/// are handed out again in stream order, without asking the device. The same code serves CPU and
/// GPU. Blocks belong to the stream they were allocated on and are reused on it at once, since the
/// stream orders the uses. A request on a stream that captures comes from the private pool of that
/// capture; memory that a capture has used never serves anything but captures. Thread-safe.
///
/// A block that other streams use as well is freed when they are done with it. Outside of captures
/// `record_stream` names those streams. Inside of a capture its recording says who uses a block: it
/// is reused in the same capture as soon as the recorded order puts every use before the request.
///
/// Sizes round up to 512 bytes. Growable segments (`set_growable_segments`): one range of addresses
/// for each pool, stream and kind of request (up to 1 MiB or larger), behind which memory is put as
/// needed, in pages of 2 MiB, so that the order of sizes does not decide how much is held. Plain
/// segments: requests up to 1 MiB are cut from 2 MiB; up to 10 MiB from 20 MiB; larger ones get
/// segments of their own, rounded up to 2 MiB.
class CachingAllocator {
 public:
  explicit CachingAllocator(DeviceRuntime& runtime);
  ~CachingAllocator();

  /// A block of at least `bytes` for use on `stream`; null for 0 bytes. When the device is full,
  /// cached segments are given back first (except during a capture).
  /// @throws OutOfMemory  listing pools by name with bytes in use, bytes cached and the largest
  /// free
  ///   block, what could be given back, and what to do.
  [[nodiscard]] Block* allocate(std::size_t bytes, StreamState& stream);
  /// The block's memory may be reused by later work on its stream, once other streams that use it
  /// are done. Null is fine.
  void free(Block* block) noexcept;
  /// Work submitted to `stream` until the block's free may use it. Null is fine.
  void record_stream(Block* block, StreamState& stream);
  /// The operation that `session` recorded last, on `stream`, uses the block. Null is fine.
  void record_operation(Block* block, StreamState& stream, CaptureSession& session);
  [[nodiscard]] static void* address(const Block* block) noexcept;
  /// Id of the pool that the block belongs to, 0 for the common one.
  [[nodiscard]] static std::uint64_t pool_of(const Block* block) noexcept;
  /// As `pool_of`, but 0 for a block that was allocated outside of any capture.
  [[nodiscard]] static std::uint64_t capture_pool_of(const Block* block) noexcept;

  /// Registers a private pool with one use; `name` is for reports, at first "pool ID". Ids are
  /// never 0 and never used again in the process.
  [[nodiscard]] std::uint64_t create_pool(std::string name);
  /// @throws StateError  if no such pool is in use; one whose last use is gone cannot come back.
  void retain_pool(std::uint64_t id);
  /// At the last use the pool's free segments go back to the device; those with live blocks follow
  /// when their last block is freed. While any capture is in progress both wait for its end.
  void release_pool(std::uint64_t id) noexcept;

  /// Gives free segments of the common pool back to the device, after waiting for it. Pools in use
  /// keep theirs, which replays need. Likewise free page-locked memory. Does nothing while any
  /// capture is in progress.
  CacheEmptied empty_cache();

  /// Most bytes that this allocator holds from the device, private pools included; nullopt (the
  /// start) is no limit. A limit below what is held stops growth alone. @throws ValueError for 0.
  void set_memory_limit(std::optional<std::size_t> bytes);
  /// As a part of the device's memory; 1 is no limit. @throws ValueError unless 0 < fraction <= 1.
  void set_memory_fraction(double fraction);
  [[nodiscard]] std::optional<std::size_t> memory_limit() const;

  /// Whether memory is added to growable segments, where the device can, or comes in plain ones. At
  /// first true on the CPU and false on a GPU. Segments that are there stay as they are and go on
  /// serving.
  void set_growable_segments(bool enabled);
  /// False also where the device cannot.
  [[nodiscard]] bool has_growable_segments() const;

  /// `observer` is called, without any lock, before an OutOfMemory is thrown; it must not throw.
  /// @return  a number for `remove_shortage_observer`.
  int add_shortage_observer(std::function<void(const Shortage&)> observer);
  void remove_shortage_observer(int id);

  /// Keeps the last `max_events` events and the site of every allocation from here on, for
  /// snapshots; 0 (the start) keeps none.
  void record_history(std::size_t max_events);
  /// `operation` writes the block; the first to do so names its allocation. Null is fine.
  void name_allocation(const Block* block, const char* operation);
  /// As `memory_snapshot` in memory_snapshot.h.
  [[nodiscard]] std::string snapshot() const;

  /// Page-locked host memory for copies to and from the device.
  [[nodiscard]] PinnedAllocator& pinned() noexcept;

  [[nodiscard]] AllocatorStats stats() const;
  void reset_peak_stats();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The allocator of `device`, made on first use, never destroyed: tensors with static storage
/// duration may outlive everything else.
[[nodiscard]] CachingAllocator& allocator(Device device);

/// A private pool that captures, or the scope of a PoolGuard, allocate from; copies share it. Pass
/// one handle to several captures to let them share memory: their replays must then never overlap,
/// and each result be used before the next replay.
class GraphPool {
 public:
  GraphPool() noexcept = default;
  GraphPool(Device device, std::string name);

  /// 0 for an empty handle.
  [[nodiscard]] std::uint64_t id() const noexcept { return lease_ ? lease_->id : 0; }
  [[nodiscard]] Device device() const noexcept { return lease_ ? lease_->device : Device{}; }
  /// All zero for an empty handle.
  [[nodiscard]] PoolStats stats() const;
  explicit operator bool() const noexcept { return static_cast<bool>(lease_); }
  friend bool operator==(const GraphPool&, const GraphPool&) noexcept = default;

 private:
  friend class PoolGuard;

  /// One use of the pool.
  struct Lease final : RefCounted {
    Lease(Device device, std::string name);
    ~Lease() override;
    const Device device;
    const std::uint64_t id;
  };
  Ref<Lease> lease_;
};

/// A fresh pool handle. No memory is taken before the first capture that uses it.
[[nodiscard]] GraphPool graph_pool_handle(Device device, std::string name = {});

/// While it lives, the calling thread's allocations on the pool's device come from `pool`, outside
/// of captures: warm-up in the pool of the capture that follows pays for its memory once. Tensors
/// stay valid when the pool's last handle is gone. Guards of different pools nest; the innermost
/// counts. Memory that a capture of the pool has used is not handed out here; a capture on the same
/// stream does use what is free, so a replay on another stream must wait for the work done here.
class [[nodiscard]] PoolGuard {
 public:
  /// @throws StateError for an empty handle or a pool that a guard of this thread already uses;
  ///   CaptureError while the current stream captures.
  explicit PoolGuard(GraphPool pool, Where where = Where::current());
  ~PoolGuard();
  PoolGuard(const PoolGuard&) = delete;
  PoolGuard& operator=(const PoolGuard&) = delete;

  /// Id of the pool that serves this thread's requests on `device`; 0 for the common one.
  [[nodiscard]] static std::uint64_t current(Device device) noexcept;

 private:
  const GraphPool pool_;
  const PoolGuard* const outer_;
};

}  // namespace capstan

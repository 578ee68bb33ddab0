#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "framework/core/ref.h"
#include "framework/runtime/runtime.h"
#include "framework/runtime/stream.h"

namespace capstan {

/// Totals of page-locked host memory.
struct PinnedStats {
  std::int64_t allocated_bytes = 0;  ///< handed out, rounded sizes
  std::int64_t reserved_bytes = 0;   ///< held from the system
  std::int64_t awaiting_bytes = 0;   ///< given back, but streams may still use them
  std::int64_t blocks = 0;           ///< handed out
};

class PinnedAllocator;

/// A block of page-locked memory that is handed out. With its last Ref it goes back to its
/// allocator, which must outlive it.
class PinnedMemory final : public RefCounted {
 public:
  ~PinnedMemory() override;
  [[nodiscard]] void* data() const noexcept;

 private:
  friend class PinnedAllocator;
  struct Block;
  PinnedMemory(PinnedAllocator& owner, Block& block) : owner_(owner), block_(block) {}

  PinnedAllocator& owner_;
  Block& block_;
};

/// Caches page-locked host memory: blocks of 2^n bytes, at least 512, of which a free one serves
/// every later request of its size. A block that streams use is handed out again when they are done
/// with it; one that a captured copy uses stays with the graph, whose replays use it again.
/// Thread-safe. Nothing here waits for the device, and giving a block back does not even ask it, so
/// that captures are never disturbed.
class PinnedAllocator {
 public:
  explicit PinnedAllocator(DeviceRuntime& runtime);
  ~PinnedAllocator();
  PinnedAllocator(const PinnedAllocator&) = delete;
  PinnedAllocator& operator=(const PinnedAllocator&) = delete;

  /// At least `bytes` > 0. When the system has no more, free blocks go back first (except during a
  /// capture). @throws OutOfMemory.
  [[nodiscard]] Ref<PinnedMemory> allocate(std::size_t bytes);
  /// The work given to `stream` up to now uses the block. While the stream captures: the graph
  /// keeps the block.
  void record_use(const Ref<PinnedMemory>& memory, StreamState& stream);
  /// The block that is handed out and holds the whole range; null if there is none.
  [[nodiscard]] Ref<PinnedMemory> find(const void* address, std::size_t bytes) const;

  /// Gives free blocks that no stream uses back to the system. Nothing during a capture.
  /// @return  their bytes.
  std::size_t empty_cache() noexcept;
  [[nodiscard]] PinnedStats stats() const;

  /// For snapshots: a block, as it is now.
  struct BlockReport {
    const void* address = nullptr;
    std::size_t bytes = 0;
    std::size_t requested = 0;
    const char* state = "";  ///< in_use, awaiting_free or free
  };
  [[nodiscard]] std::vector<BlockReport> report() const;

 private:
  friend class PinnedMemory;
  using Block = PinnedMemory::Block;
  static constexpr std::size_t kSizes = 64;

  [[nodiscard]] Block* take_free(std::size_t size) noexcept;
  [[nodiscard]] Block* make_block(std::size_t size);
  void give_back(Block& block) noexcept;
  void poll() noexcept;
  [[nodiscard]] bool is_done(Block& block) noexcept;
  std::size_t release_free() noexcept;

  DeviceRuntime& runtime_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::array<std::vector<Block*>, kSizes> free_;  // by the logarithm of their size
  std::vector<Block*> awaiting_;
  std::vector<void*> events_;  // that no use needs now; room for all
  std::size_t event_count_ = 0;
  PinnedStats stats_;
};

}  // namespace capstan

#include "framework/memory/pinned_allocator.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <functional>
#include <limits>
#include <utility>

#include "framework/core/error.h"
#include "framework/runtime/capture_session.h"

namespace capstan {
namespace {

constexpr std::size_t kSmallest = 512;
// Past this, rounding up could overflow.
constexpr std::size_t kLargest = std::numeric_limits<std::size_t>::max() / 4;

constexpr const char* kInUse = "in_use";
constexpr const char* kAwaiting = "awaiting_free";
constexpr const char* kFree = "free";

std::size_t index_of(std::size_t size) noexcept {
  return static_cast<std::size_t>(std::countr_zero(size));
}

}  // namespace

struct PinnedMemory::Block {
  struct Use {
    std::uint64_t stream = 0;
    void* event = nullptr;
  };
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::size_t requested = 0;
  const char* state = kFree;
  PinnedMemory* handle = nullptr;  // while it is handed out
  std::vector<Use> uses;           // since it was handed out
};

PinnedMemory::~PinnedMemory() { owner_.give_back(block_); }

void* PinnedMemory::data() const noexcept { return block_.data; }

PinnedAllocator::PinnedAllocator(DeviceRuntime& runtime) : runtime_(runtime) {}

PinnedAllocator::~PinnedAllocator() {
  for (const auto& block : blocks_) {
    for (const Block::Use& use : block->uses) runtime_.destroy_event(use.event);
    runtime_.deallocate_pinned(block->data);
  }
  for (void* event : events_) runtime_.destroy_event(event);
}

Ref<PinnedMemory> PinnedAllocator::allocate(std::size_t bytes) {
  CAPSTAN_CHECK(bytes <= kLargest, OutOfMemory, "pinned memory: ", bytes,
                " bytes are more than any machine has");
  const std::size_t size = std::max(kSmallest, std::bit_ceil(bytes));
  const bool capturing = is_current_stream_capturing(runtime_.device());
  const std::lock_guard lock(mutex_);
  if (!capturing) poll();
  Block* block = take_free(size);
  if (block == nullptr) block = make_block(size);
  try {
    block->handle = new PinnedMemory(*this, *block);
  } catch (...) {
    free_[index_of(size)].push_back(block);
    throw;
  }
  block->requested = bytes;
  block->state = kInUse;
  stats_.allocated_bytes += static_cast<std::int64_t>(size);
  ++stats_.blocks;
  return Ref<PinnedMemory>(block->handle);
}

PinnedAllocator::Block* PinnedAllocator::take_free(std::size_t size) noexcept {
  std::vector<Block*>& free = free_[index_of(size)];
  if (free.empty()) return nullptr;
  Block* block = free.back();
  free.pop_back();
  return block;
}

// The block has a place in every list, so that giving it back needs no memory.
PinnedAllocator::Block* PinnedAllocator::make_block(std::size_t size) {
  auto block = std::make_unique<Block>();
  block->bytes = size;
  const std::size_t room = std::bit_ceil(blocks_.size() + 1);
  blocks_.reserve(room);
  awaiting_.reserve(room);
  free_[index_of(size)].reserve(room);
  block->data = static_cast<std::byte*>(runtime_.allocate_pinned(size));
  if (block->data == nullptr && detail::active_captures() == 0) {
    poll();
    if (release_free() != 0) {
      block->data = static_cast<std::byte*>(runtime_.allocate_pinned(size));
    }
  }
  CAPSTAN_CHECK(block->data != nullptr, OutOfMemory,
                "pinned memory: no page-locked memory left for ", size, " bytes; ",
                stats_.allocated_bytes, " are in use and ",
                stats_.reserved_bytes - stats_.allocated_bytes,
                " cached; use smaller batches or less prefetching");
  stats_.reserved_bytes += static_cast<std::int64_t>(size);
  blocks_.push_back(std::move(block));
  return blocks_.back().get();
}

void PinnedAllocator::record_use(const Ref<PinnedMemory>& memory, StreamState& stream) {
  const std::lock_guard entering(stream.entering);
  if (CaptureSession* const session = stream.session()) {
    session->retain(Ref<const RefCounted>(memory.get()));
    return;
  }
  const std::lock_guard lock(mutex_);
  std::vector<Block::Use>& uses = memory->block_.uses;
  auto use = std::find_if(uses.begin(), uses.end(),
                          [&](const Block::Use& known) { return known.stream == stream.id; });
  if (use == uses.end()) {
    uses.reserve(uses.size() + 1);
    if (events_.empty()) {
      events_.reserve(event_count_ + 1);
      events_.push_back(runtime_.create_event(false));
      ++event_count_;
    }
    use = uses.insert(uses.end(), {stream.id, events_.back()});
    events_.pop_back();
  }
  runtime_.record_event(use->event, stream);
}

Ref<PinnedMemory> PinnedAllocator::find(const void* address, std::size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(address);
  const std::lock_guard lock(mutex_);
  for (const auto& block : blocks_) {
    const bool holds = block->handle != nullptr && !std::less<>()(begin, block->data) &&
                       !std::less<>()(block->data + block->requested, begin + bytes);
    if (holds) return Ref<PinnedMemory>(block->handle);
  }
  return {};
}

void PinnedAllocator::give_back(Block& block) noexcept {
  const std::lock_guard lock(mutex_);
  block.handle = nullptr;
  block.requested = 0;
  stats_.allocated_bytes -= static_cast<std::int64_t>(block.bytes);
  --stats_.blocks;
  if (block.uses.empty()) {
    block.state = kFree;
    free_[index_of(block.bytes)].push_back(&block);
  } else {
    block.state = kAwaiting;
    stats_.awaiting_bytes += static_cast<std::int64_t>(block.bytes);
    awaiting_.push_back(&block);
  }
}

bool PinnedAllocator::is_done(Block& block) noexcept {
  try {
    while (!block.uses.empty()) {
      if (!runtime_.event_done(block.uses.back().event)) return false;
      events_.push_back(block.uses.back().event);
      block.uses.pop_back();
    }
    return true;
  } catch (const std::exception&) {
    return false;  // what broke the device shows at the next call that may throw
  }
}

void PinnedAllocator::poll() noexcept {
  std::erase_if(awaiting_, [this](Block* block) {
    if (!is_done(*block)) return false;
    block->state = kFree;
    stats_.awaiting_bytes -= static_cast<std::int64_t>(block->bytes);
    free_[index_of(block->bytes)].push_back(block);
    return true;
  });
}

std::size_t PinnedAllocator::release_free() noexcept {
  std::size_t bytes = 0;
  for (std::vector<Block*>& free : free_) free.clear();
  std::erase_if(blocks_, [&](const std::unique_ptr<Block>& block) {
    if (block->state != kFree) return false;
    runtime_.deallocate_pinned(block->data);
    bytes += block->bytes;
    return true;
  });
  stats_.reserved_bytes -= static_cast<std::int64_t>(bytes);
  return bytes;
}

std::size_t PinnedAllocator::empty_cache() noexcept {
  const std::lock_guard lock(mutex_);
  if (detail::active_captures() != 0) return 0;
  poll();
  return release_free();
}

PinnedStats PinnedAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

std::vector<PinnedAllocator::BlockReport> PinnedAllocator::report() const {
  const std::lock_guard lock(mutex_);
  std::vector<BlockReport> all;
  for (const auto& block : blocks_) {
    all.push_back({block->data, block->bytes, block->requested, block->state});
  }
  return all;
}

}  // namespace capstan

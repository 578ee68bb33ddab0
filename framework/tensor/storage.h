#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "framework/core/device.h"
#include "framework/core/ref.h"

namespace capstan {

struct Block;
class CaptureSession;
class Stream;
class StreamState;

namespace detail {
/// Number of storages that nobody may use now; a cheap test before looking closer.
inline constinit std::atomic<std::int64_t> refused_storages{0};
}  // namespace detail

/// What is known of a storage to those that do not keep it alive. Thread-safe.
class StorageWatch final : public RefCounted {
 public:
  [[nodiscard]] bool freed() const noexcept { return freed_.load(std::memory_order_acquire); }
  /// How many tensors that named this memory have been given other memory since (set_data).
  [[nodiscard]] std::int64_t times_left() const noexcept {
    return left_.load(std::memory_order_acquire);
  }

 private:
  friend class Storage;
  std::atomic<bool> freed_{false};
  std::atomic<std::int64_t> left_{0};
};

/// The memory behind one or more tensors: from the caching allocator, or the user's own.
class Storage final : public RefCounted {
 public:
  /// Allocates for the calling thread's current stream of `device`. @throws OutOfMemory.
  Storage(Device device, std::size_t bytes);
  /// Wraps memory that the caller owns; `release` runs when the last tensor is gone.
  Storage(Device device, void* data, std::size_t bytes, std::function<void()> release);
  ~Storage() override;

  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// True for the user's own memory.
  [[nodiscard]] bool is_borrowed() const noexcept { return block_ == nullptr && bytes_ != 0; }
  /// Private pool of the capture in which the memory was allocated; 0 for all other memory.
  [[nodiscard]] std::uint64_t pool() const noexcept;
  /// Work on `stream` uses this memory: it is not reused before what that stream has been given
  /// until the end of this storage is done. Not needed for operations of a capture, whose recording
  /// knows. Does nothing for the user's own memory.
  void record_stream(const Stream& stream) const;
  /// The operation that `session` recorded last, on `stream`, uses this memory.
  void record_operation(StreamState& stream, CaptureSession& session) const;
  /// `operation` writes this memory; see CachingAllocator::name_allocation.
  void name_allocation(const char* operation) const;
  /// The same object at every call; it outlives the storage.
  [[nodiscard]] Ref<StorageWatch> watch() const;
  /// A tensor that named this memory names another from now on, or names this one again.
  void tensor_left() const;
  void tensor_returned() const noexcept;

  /// Until `allow_use`, operations and the host that would read this memory throw StateError with
  /// `reason`, unless they are recorded by a capture; one that writes it allows its use again.
  void refuse_use(std::shared_ptr<const std::string> reason);
  void allow_use() noexcept;
  /// @throws StateError  "OPERATION: REASON" while use is refused.
  void check_use(const char* operation) const {
    if (refused_.load(std::memory_order_acquire)) [[unlikely]]
      throw_refused(operation);
  }

  /// Grows with every storage made in the process.
  [[nodiscard]] std::uint64_t serial() const noexcept { return serial_; }

  /// Counts writes; all views share it. A saved tensor whose version moved cannot be used.
  [[nodiscard]] std::int64_t version() const noexcept {
    return version_.load(std::memory_order_relaxed);
  }
  void bump_version() noexcept { version_.fetch_add(1, std::memory_order_relaxed); }
  void set_version(std::int64_t version) noexcept {
    version_.store(version, std::memory_order_relaxed);
  }

 private:
  [[nodiscard]] StorageWatch& make_watch() const;
  [[noreturn]] void throw_refused(const char* operation) const;

  const Device device_;
  void* data_ = nullptr;
  const std::size_t bytes_;
  Block* block_ = nullptr;
  const std::uint64_t serial_;
  std::atomic<std::int64_t> version_{0};
  mutable std::atomic<StorageWatch*> watch_{nullptr};  // owned
  std::atomic<bool> refused_{false};
  Ref<RefCounted> newborns_;  // where a capture finds what it made
  std::function<void()> release_;
};

}  // namespace capstan

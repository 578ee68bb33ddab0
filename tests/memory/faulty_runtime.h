#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "framework/runtime/runtime.h"

namespace capstan::testing {

/// A device with `limit` bytes of the memory of another, on which chosen requests fail. Everything
/// else is passed on.
class FaultyRuntime final : public DeviceRuntime {
 public:
  explicit FaultyRuntime(DeviceRuntime& device,
                         std::size_t limit = std::numeric_limits<std::size_t>::max(),
                         bool growable = false)
      : device_(device), limit_(limit), growable_(growable) {}

  /// The `k`-th request for memory from now on fails, counted from 1.
  void fail_allocation(std::int64_t k) { fails_at_ = calls_ + k; }
  [[nodiscard]] std::int64_t calls() const noexcept { return calls_; }
  [[nodiscard]] std::size_t used() const noexcept { return used_; }
  [[nodiscard]] std::size_t live_segments() const noexcept { return live_.size() + ranges_; }

  [[nodiscard]] Device device() const noexcept override { return device_.device(); }
  [[nodiscard]] std::string name() const override { return "faulty " + device_.name(); }
  void make_current() override { device_.make_current(); }

  [[nodiscard]] void* allocate(std::size_t bytes) override {
    if (++calls_ == fails_at_ || bytes > limit_ - used_) return nullptr;
    void* address = device_.allocate(bytes);
    if (address == nullptr) return nullptr;
    used_ += bytes;
    live_.emplace(address, bytes);
    return address;
  }
  void deallocate(void* address) noexcept override {
    const auto found = live_.find(address);
    used_ -= found->second;
    live_.erase(found);
    device_.deallocate(address);
  }
  [[nodiscard]] std::size_t page_bytes() noexcept override {
    return growable_ ? device_.page_bytes() : 0;
  }
  [[nodiscard]] void* reserve_addresses(std::size_t bytes) override {
    void* const address = device_.reserve_addresses(bytes);
    ranges_ += address != nullptr ? 1 : 0;
    return address;
  }
  void release_addresses(void* address, std::size_t bytes) noexcept override {
    --ranges_;
    device_.release_addresses(address, bytes);
  }
  [[nodiscard]] bool map_pages(void* address, std::size_t bytes) override {
    if (++calls_ == fails_at_ || bytes > limit_ - used_) return false;
    if (!device_.map_pages(address, bytes)) return false;
    used_ += bytes;
    return true;
  }
  void unmap_pages(void* address, std::size_t bytes) noexcept override {
    used_ -= bytes;
    device_.unmap_pages(address, bytes);
  }
  [[nodiscard]] void* allocate_pinned(std::size_t bytes) override {
    return device_.allocate_pinned(bytes);
  }
  void deallocate_pinned(void* address) noexcept override { device_.deallocate_pinned(address); }
  [[nodiscard]] DeviceMemory memory() override {
    const DeviceMemory memory = device_.memory();
    return {std::min(memory.free_bytes, limit_ - used_), std::min(memory.total_bytes, limit_)};
  }

  [[nodiscard]] void* create_stream(int priority) override {
    return device_.create_stream(priority);
  }
  void destroy_stream(void* stream) noexcept override { device_.destroy_stream(stream); }
  void synchronize_stream(StreamState& stream) override { device_.synchronize_stream(stream); }
  [[nodiscard]] bool stream_done(StreamState& stream) override {
    return device_.stream_done(stream);
  }
  void synchronize_device() override { device_.synchronize_device(); }

  [[nodiscard]] void* create_event(bool timing) override { return device_.create_event(timing); }
  void destroy_event(void* event) noexcept override { device_.destroy_event(event); }
  void record_event(void* event, StreamState& stream) override {
    device_.record_event(event, stream);
  }
  void wait_event(StreamState& stream, void* event) override { device_.wait_event(stream, event); }
  [[nodiscard]] bool event_done(void* event) override { return device_.event_done(event); }
  void synchronize_event(void* event) override { device_.synchronize_event(event); }
  [[nodiscard]] float elapsed_ms(void* start, void* end) override {
    return device_.elapsed_ms(start, end);
  }

  void copy(void* to, const void* from, std::size_t bytes, StreamState& stream) override {
    device_.copy(to, from, bytes, stream);
  }
  void fill(void* address, std::uint8_t value, std::size_t bytes, StreamState& stream) override {
    device_.fill(address, value, bytes, stream);
  }
  [[nodiscard]] Ref<RefCounted> begin_capture(StreamState& stream, CaptureErrorMode mode) override {
    return device_.begin_capture(stream, mode);
  }
  [[nodiscard]] Ref<NativeGraph> end_capture(CaptureSession& session) override {
    return device_.end_capture(session);
  }

 private:
  DeviceRuntime& device_;
  std::size_t limit_;
  std::size_t used_ = 0;
  std::int64_t calls_ = 0;
  std::int64_t fails_at_ = 0;
  std::map<void*, std::size_t> live_;
  const bool growable_;
  std::size_t ranges_ = 0;
};

}  // namespace capstan::testing

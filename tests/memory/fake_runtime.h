#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "framework/core/error.h"
#include "framework/runtime/capture_session.h"
#include "framework/runtime/runtime.h"
#include "framework/runtime/stream.h"

namespace capstan::testing {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;
/// A limit that no test meets.
inline constexpr std::size_t kPlenty = std::size_t{1} << 40;

inline constexpr std::size_t kFakePage = 2 * kMiB;

enum class Segments { plain, growable };

/// A device of `limit` bytes whose memory is addresses only: it counts what is asked of it, and
/// nothing may read or write through it. Captures record nothing.
class FakeRuntime final : public DeviceRuntime {
 public:
  explicit FakeRuntime(std::size_t limit, Segments segments = Segments::plain)
      : limit_(limit), segments_(segments) {}

  [[nodiscard]] Device device() const noexcept override { return Device::cpu(); }
  [[nodiscard]] std::string name() const override { return "fake"; }

  [[nodiscard]] void* allocate(std::size_t bytes) override {
    ++allocate_calls;
    if (bytes > limit_ - used_) return nullptr;
    used_ += bytes;
    next_address_ += bytes + kGap;
    const std::uintptr_t address = next_address_ - bytes;
    live_.emplace(address, bytes);
    return reinterpret_cast<void*>(address);
  }
  void deallocate(void* address) noexcept override {
    ++deallocate_calls;
    const auto found = live_.find(reinterpret_cast<std::uintptr_t>(address));
    if (found == live_.end()) {
      ++bad_deallocations;
      return;
    }
    used_ -= found->second;
    live_.erase(found);
  }
  [[nodiscard]] std::size_t page_bytes() noexcept override {
    return segments_ == Segments::growable ? kFakePage : 0;
  }
  [[nodiscard]] void* reserve_addresses(std::size_t bytes) override {
    if (no_addresses) return nullptr;
    const std::uintptr_t address = (next_address_ + kFakePage) / kFakePage * kFakePage;
    next_address_ = address + bytes + kGap;
    ranges_.emplace(address, bytes);
    return reinterpret_cast<void*>(address);
  }
  void release_addresses(void* address, std::size_t bytes) noexcept override {
    const auto found = ranges_.find(reinterpret_cast<std::uintptr_t>(address));
    const bool right = found != ranges_.end() && found->second == bytes && bytes % kFakePage == 0;
    const auto page = pages_.lower_bound(reinterpret_cast<std::uintptr_t>(address));
    const bool empty =
        page == pages_.end() || *page >= reinterpret_cast<std::uintptr_t>(address) + bytes;
    if (!right || !empty) ++bad_deallocations;
    if (found != ranges_.end()) ranges_.erase(found);
  }
  [[nodiscard]] bool map_pages(void* address, std::size_t bytes) override {
    ++allocate_calls;
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    auto range = ranges_.upper_bound(begin);
    const bool within = range != ranges_.begin() &&
                        begin + bytes <= std::prev(range)->first + std::prev(range)->second;
    if (!within || begin % kFakePage != 0 || bytes % kFakePage != 0) ++bad_mappings;
    if (bytes > limit_ - used_) return false;
    used_ += bytes;
    for (std::uintptr_t page = begin; page < begin + bytes; page += kFakePage) {
      if (!pages_.insert(page).second) ++bad_mappings;
    }
    return true;
  }
  void unmap_pages(void* address, std::size_t bytes) noexcept override {
    ++deallocate_calls;
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    if (begin % kFakePage != 0 || bytes % kFakePage != 0) ++bad_deallocations;
    for (std::uintptr_t page = begin; page < begin + bytes; page += kFakePage) {
      if (pages_.erase(page) == 0) ++bad_deallocations;
    }
    used_ -= bytes;
  }
  /// Page-locked memory is real.
  [[nodiscard]] void* allocate_pinned(std::size_t bytes) override {
    ++pinned_calls;
    if (pinned_.size() == pinned_limit) return nullptr;
    pinned_.push_back(std::make_unique<std::byte[]>(bytes));
    return pinned_.back().get();
  }
  void deallocate_pinned(void* address) noexcept override {
    std::erase_if(pinned_, [address](const auto& memory) { return memory.get() == address; });
  }
  [[nodiscard]] std::size_t pinned_blocks() const noexcept { return pinned_.size(); }
  [[nodiscard]] DeviceMemory memory() override { return {limit_ - used_, limit_}; }

  [[nodiscard]] void* create_stream(int) override { return nullptr; }
  void destroy_stream(void*) noexcept override {}
  void synchronize_stream(StreamState&) override {}
  [[nodiscard]] bool stream_done(StreamState&) override { return true; }
  void synchronize_device() override {
    if (broken) throw DeviceError("fake: the device is broken");
    ++synchronizations;
  }

  [[nodiscard]] void* create_event(bool) override {
    ++events;
    return new Mark;
  }
  void destroy_event(void* event) noexcept override {
    --events;
    delete static_cast<Mark*>(event);
  }
  void record_event(void* event, StreamState& stream) override {
    if (stream.session() != nullptr || captures(stream)) ++events_in_capture;
    *static_cast<Mark*>(event) = {stream.id, ++submitted_};
  }
  void wait_event(StreamState&, void*) override {}
  [[nodiscard]] bool event_done(void* event) override {
    ++queries;
    const auto gate = gates_.find(static_cast<Mark*>(event)->stream);
    return gate == gates_.end() || static_cast<Mark*>(event)->number <= gate->second;
  }
  void synchronize_event(void*) override {}
  [[nodiscard]] float elapsed_ms(void*, void*) override { return 0.0f; }

  void copy(void*, const void*, std::size_t, StreamState&) override {}
  void fill(void*, std::uint8_t, std::size_t, StreamState&) override {}

  [[nodiscard]] Ref<RefCounted> begin_capture(StreamState& stream, CaptureErrorMode) override {
    const std::lock_guard lock(capturing_mutex_);
    capturing_.insert(stream.id);
    return {};
  }
  [[nodiscard]] Ref<NativeGraph> end_capture(CaptureSession& session) override {
    const std::lock_guard lock(capturing_mutex_);
    capturing_.erase(session.origin().id());
    return {};
  }

  /// Work that `stream` is given from here on does not run until `open`.
  void shut(const Stream& stream) { gates_[stream.id()] = submitted_; }
  void open(const Stream& stream) { gates_.erase(stream.id()); }

  [[nodiscard]] std::size_t used() const noexcept { return used_; }
  [[nodiscard]] std::size_t live_segments() const noexcept { return live_.size() + ranges_.size(); }

  int allocate_calls = 0;
  int synchronizations = 0;
  int bad_deallocations = 0;
  int bad_mappings = 0;
  int deallocate_calls = 0;
  int events = 0;  ///< made and not destroyed
  int queries = 0;
  int events_in_capture = 0;       ///< recorded on a stream that captures
  int pinned_calls = 0;            ///< that asked for memory
  std::size_t pinned_limit = 100;  ///< most blocks
  bool broken = false;
  bool no_addresses = false;  ///< left to reserve

 private:
  // Segments never touch, so merging across two of them would show as a wrong address.
  static constexpr std::uintptr_t kGap = 4096;

  [[nodiscard]] bool captures(const StreamState& stream) {
    const std::lock_guard lock(capturing_mutex_);
    return capturing_.contains(stream.id);
  }

  struct Mark {
    std::uint64_t stream = 0;
    std::uint64_t number = 0;
  };

  std::size_t limit_;
  const Segments segments_;
  std::size_t used_ = 0;
  std::uintptr_t next_address_ = std::uintptr_t{1} << 20;
  std::map<std::uintptr_t, std::size_t> live_;
  std::map<std::uintptr_t, std::size_t> ranges_;  // reserved
  std::set<std::uintptr_t> pages_;                // mapped
  std::map<std::uint64_t, std::uint64_t> gates_;  // stream, last mark that is done
  std::uint64_t submitted_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> pinned_;
  std::mutex capturing_mutex_;
  std::set<std::uint64_t> capturing_;  // streams, from the first moment of their capture
};

[[nodiscard]] inline Stream new_stream(FakeRuntime& fake) {
  return Stream(make_ref<StreamState>(fake, nullptr, 0, false));
}

}  // namespace capstan::testing

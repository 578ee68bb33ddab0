#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "framework/core/error.h"
#include "framework/runtime/capture_session.h"
#include "framework/runtime/runtime.h"
#include "framework/runtime/stream.h"

namespace capstan::testing {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;
/// A limit that no test meets.
inline constexpr std::size_t kPlenty = std::size_t{1} << 40;

/// A device of `limit` bytes whose memory is addresses only: it counts what is asked of it, and
/// nothing may read or write through it. Captures record nothing.
class FakeRuntime final : public DeviceRuntime {
 public:
  explicit FakeRuntime(std::size_t limit) : limit_(limit) {}

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
  [[nodiscard]] void* allocate_pinned(std::size_t) override { return nullptr; }
  void deallocate_pinned(void*) noexcept override {}
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
  [[nodiscard]] std::size_t live_segments() const noexcept { return live_.size(); }

  int allocate_calls = 0;
  int synchronizations = 0;
  int bad_deallocations = 0;
  int deallocate_calls = 0;
  int events = 0;  ///< made and not destroyed
  int queries = 0;
  int events_in_capture = 0;  ///< recorded on a stream that captures
  bool broken = false;

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
  std::size_t used_ = 0;
  std::uintptr_t next_address_ = std::uintptr_t{1} << 20;
  std::map<std::uintptr_t, std::size_t> live_;
  std::map<std::uint64_t, std::uint64_t> gates_;  // stream, last mark that is done
  std::uint64_t submitted_ = 0;
  std::mutex capturing_mutex_;
  std::set<std::uint64_t> capturing_;  // streams, from the first moment of their capture
};

[[nodiscard]] inline Stream new_stream(FakeRuntime& fake) {
  return Stream(make_ref<StreamState>(fake, nullptr, 0, false));
}

}  // namespace capstan::testing

#include "framework/runtime/cpu_runtime.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "framework/core/error.h"
#include "framework/runtime/capture_session.h"
#include "framework/runtime/cpu_pages.h"
#include "framework/runtime/dispatch.h"

namespace capstan::cpu {
namespace {

constexpr std::size_t kAlignment = 64;

// Kernel calls in the order of submission, which is always a legal order. Arguments lie in chunks
// that never move.
class Tape : public RefCounted {
 public:
  void append(KernelThunk thunk, void (*kernel)(), const void* args, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    nodes_.push_back({thunk, kernel, store(args, bytes)});
  }

  void run() const {
    for (const Node& node : nodes_) node.thunk(node.kernel, node.args);
  }

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(nodes_.size()); }

 private:
  struct Node {
    KernelThunk thunk;
    void (*kernel)();
    const void* args;
  };

  static constexpr std::size_t kChunkBytes = 64 * 1024;

  const void* store(const void* args, std::size_t bytes) {
    const std::size_t padded = (bytes + 15) / 16 * 16;
    if (chunks_.empty() || used_ + padded > kChunkBytes) {
      chunks_.push_back(std::make_unique<std::byte[]>(std::max(padded, kChunkBytes)));
      used_ = 0;
    }
    std::byte* const place = chunks_.back().get() + used_;
    std::memcpy(place, args, bytes);
    used_ += padded;
    return place;
  }

  std::mutex mutex_;
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::size_t used_ = 0;
};

class TapeExec final : public NativeExec {
 public:
  explicit TapeExec(Ref<Tape> tape) : tape_(std::move(tape)) {}
  void launch(StreamState&) override { tape_->run(); }

 private:
  Ref<Tape> tape_;
};

class TapeGraph final : public NativeGraph {
 public:
  explicit TapeGraph(Ref<Tape> tape) : tape_(std::move(tape)) {}
  std::unique_ptr<NativeExec> instantiate() override { return std::make_unique<TapeExec>(tape_); }
  std::int64_t node_count() const override { return tape_->size(); }

 private:
  Ref<Tape> tape_;
};

struct CopyArgs {
  void* to;
  const void* from;
  std::size_t bytes;
};
void copy_bytes(const CopyArgs& args) { std::memmove(args.to, args.from, args.bytes); }

struct FillArgs {
  void* address;
  std::uint8_t value;
  std::size_t bytes;
};
void fill_bytes(const FillArgs& args) { std::memset(args.address, args.value, args.bytes); }

template <typename Args>
void submit(StreamState& stream, void (*kernel)(const Args&), const Args& args) {
  if (stream.session() == nullptr) {
    kernel(args);
    return;
  }
  const KernelThunk thunk = [](void (*function)(), const void* bytes) {
    reinterpret_cast<void (*)(const Args&)>(function)(*static_cast<const Args*>(bytes));
  };
  record_kernel(stream, thunk, reinterpret_cast<void (*)()>(kernel), &args, sizeof(Args));
}

using Clock = std::chrono::steady_clock;

class Runtime final : public DeviceRuntime {
 public:
  Device device() const noexcept override { return Device::cpu(); }
  std::string name() const override { return "CPU"; }

  void* allocate(std::size_t bytes) override {
    return std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  }
  void deallocate(void* address) noexcept override { std::free(address); }
  void* allocate_pinned(std::size_t bytes) override { return allocate(bytes); }
  void deallocate_pinned(void* address) noexcept override { deallocate(address); }
  DeviceMemory memory() override {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return {static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) * page,
            static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * page};
  }

  std::size_t page_bytes() noexcept override { return kPageBytes; }
  void* reserve_addresses(std::size_t bytes) override { return cpu::reserve_addresses(bytes); }
  void release_addresses(void* address, std::size_t bytes) noexcept override {
    cpu::release_addresses(address, bytes);
  }
  bool map_pages(void* address, std::size_t bytes) override {
    return cpu::map_pages(address, bytes);
  }
  void unmap_pages(void* address, std::size_t bytes) noexcept override {
    cpu::unmap_pages(address, bytes);
  }

  // Work has run when it was submitted, so streams need no state, and waits nothing to do.
  void* create_stream(int) override { return nullptr; }
  void destroy_stream(void*) noexcept override {}
  void synchronize_stream(StreamState&) override {}
  bool stream_done(StreamState&) override { return true; }
  void synchronize_device() override {}

  // An event is the time of its mark.
  void* create_event(bool) override { return new Clock::time_point(Clock::now()); }
  void destroy_event(void* event) noexcept override {
    delete static_cast<Clock::time_point*>(event);
  }
  void record_event(void* event, StreamState&) override {
    *static_cast<Clock::time_point*>(event) = Clock::now();
  }
  void wait_event(StreamState&, void*) override {}
  bool event_done(void*) override { return true; }
  void synchronize_event(void*) override {}
  float elapsed_ms(void* start, void* end) override {
    return std::chrono::duration<float, std::milli>(*static_cast<Clock::time_point*>(end) -
                                                    *static_cast<Clock::time_point*>(start))
        .count();
  }

  void copy(void* to, const void* from, std::size_t bytes, StreamState& stream) override {
    submit(stream, copy_bytes, CopyArgs{to, from, bytes});
  }
  void fill(void* address, std::uint8_t value, std::size_t bytes, StreamState& stream) override {
    submit(stream, fill_bytes, FillArgs{address, value, bytes});
  }

  Ref<RefCounted> begin_capture(StreamState&, CaptureErrorMode) override {
    return make_ref<Tape>();
  }
  Ref<NativeGraph> end_capture(CaptureSession& session) override {
    return make_ref<TapeGraph>(Ref<Tape>(static_cast<Tape*>(session.builder())));
  }
};

}  // namespace

void record_kernel(StreamState& stream, KernelThunk thunk, void (*kernel)(), const void* args,
                   std::size_t bytes) {
  static_cast<Tape*>(stream.session()->builder())->append(thunk, kernel, args, bytes);
}

std::unique_ptr<DeviceRuntime> make_runtime() { return std::make_unique<Runtime>(); }

}  // namespace capstan::cpu

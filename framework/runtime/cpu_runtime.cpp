#include "framework/runtime/cpu_runtime.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "framework/runtime/capture_session.h"
#include "framework/runtime/cpu_pages.h"
#include "framework/runtime/cpu_tape.h"
#include "framework/runtime/dispatch.h"
#include "framework/runtime/emulated_runtime.h"

namespace capstan::cpu {
namespace {

constexpr std::size_t kAlignment = 64;

class TapeExec final : public NativeExec {
 public:
  explicit TapeExec(Ref<Tape> tape) : tape_(std::move(tape)) {}
  void launch(StreamState& stream) override {
    CaptureSession* const session = stream.session();
    if (session == nullptr) return tape_->run();
    static_cast<Tape*>(session->builder())->append_replay(stream, tape_);
  }

 private:
  Ref<Tape> tape_;
};

class TapeGraph final : public NativeGraph {
 public:
  explicit TapeGraph(Ref<Tape> tape) : tape_(std::move(tape)) {}
  std::unique_ptr<NativeExec> instantiate() override { return std::make_unique<TapeExec>(tape_); }
  std::int64_t node_count() const override {
    return static_cast<std::int64_t>(tape_->calls().size());
  }

 private:
  Ref<Tape> tape_;
};

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

  std::size_t page_granularity() noexcept override { return kPageGranularity; }
  void* reserve_addresses(std::size_t bytes) override { return cpu::reserve_addresses(bytes); }
  void release_addresses(void* address, std::size_t bytes) noexcept override {
    cpu::release_addresses(address, bytes);
  }
  bool map_pages(void* address, std::size_t bytes, std::size_t /*page*/) override {
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

void defer_kernel(StreamState& stream, KernelThunk thunk, void (*kernel)(), const void* args,
                  std::size_t bytes) {
  const KernelCall call{thunk, kernel, args};
  if (CaptureSession* const session = stream.session()) {
    static_cast<Tape*>(session->builder())->append(stream, call, bytes);
  } else {
    emulated::enqueue(stream, call, bytes);
  }
}

std::unique_ptr<DeviceRuntime> make_runtime() { return std::make_unique<Runtime>(); }

}  // namespace capstan::cpu

#include "framework/runtime/emulated_runtime.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "framework/core/error.h"
#include "framework/runtime/capture_session.h"
#include "framework/runtime/emulation.h"

namespace capstan::emulated {
namespace {

constexpr std::size_t kAlignment = 512;

struct EventState {
  Ref<Mark> mark;         // of the last record outside of a capture
  Ref<OrderedTape> tape;  // of the last record, if it was in a capture
  OrderedTape::Frontier frontier;
};

EventState& as_event(void* event) { return *static_cast<EventState*>(event); }

Item make_call(cpu::KernelCall call, std::size_t bytes) {
  Item item;
  item.args = std::make_unique<std::byte[]>(bytes);
  std::memcpy(item.args.get(), call.args, bytes);
  call.args = item.args.get();
  item.call = call;
  return item;
}

template <typename Args>
Item make_call(void (*kernel)(const Args&), const Args& args) {
  const cpu::KernelThunk thunk = [](void (*function)(), const void* bytes) {
    reinterpret_cast<void (*)(const Args&)>(function)(*static_cast<const Args*>(bytes));
  };
  return make_call({thunk, reinterpret_cast<void (*)()>(kernel), &args}, sizeof(Args));
}

Ref<Mark> push_mark(Emulation& all, Queue& queue) {
  Item item;
  item.kind = Item::Kind::record;
  item.mark = make_ref<Mark>();
  item.mark->late_polls =
      static_cast<int>(all.scheduler.draw(static_cast<std::uint64_t>(all.options.late_polls) + 1));
  item.mark->clock = all.checker.mark(queue.chain);
  Ref<Mark> mark = item.mark;
  all.scheduler.push(queue, std::move(item));
  return mark;
}

void push_wait(Emulation& all, Queue& queue, const Ref<Mark>& mark) {
  all.checker.wait(queue.chain, mark->clock);
  Item item;
  item.kind = Item::Kind::wait;
  item.mark = mark;
  all.scheduler.push(queue, std::move(item));
}

void drain(Emulation& all, StreamState& stream) {
  Queue& queue = Emulation::queue_of(stream);
  all.scheduler.run_until([&] { return queue.items.empty(); },
                          detail::concat("synchronize: the work of stream ", stream.id));
  all.checker.finished(all.checker.mark(queue.chain));
}

class Runtime final : public DeviceRuntime {
 public:
  explicit Runtime(Device device) : device_(device) {}
  Device device() const noexcept override { return device_; }
  std::string name() const override { return "emulated CPU"; }

  void* allocate(std::size_t bytes) override {
    const std::lock_guard lock(all_.mutex);
    void* const address = aligned(bytes);
    if (address == nullptr) return nullptr;
    std::memset(address, kPoison, bytes);
    all_.checker.memory().add_device(address, bytes);
    return address;
  }

  void deallocate(void* address) noexcept override {
    const std::lock_guard lock(all_.mutex);
    const std::size_t bytes = all_.checker.memory().remove(address);
    all_.checker.gone(address, bytes);
    if (all_.scheduler.idle()) {
      std::free(address);
    } else {
      all_.leaving.push_back(address);
    }
  }

  void* allocate_pinned(std::size_t bytes) override {
    const std::lock_guard lock(all_.mutex);
    void* const address = aligned(bytes);
    if (address != nullptr) all_.checker.memory().add_pinned(address, bytes);
    return address;
  }
  void deallocate_pinned(void* address) noexcept override { deallocate(address); }

  DeviceMemory memory() override {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return {static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) * page,
            static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * page};
  }
  bool poisons() const noexcept override { return true; }
  void poison(void* address, std::size_t bytes, std::uint64_t stream) noexcept override {
    const std::lock_guard lock(all_.mutex);
    all_.checker.freed(address, bytes);
    if (Queue* const queue = all_.scheduler.find(stream)) {
      all_.scheduler.push(*queue,
                          make_call(cpu::fill_bytes, cpu::FillArgs{address, kPoison, bytes}));
    } else {
      std::memset(address, kPoison, bytes);
    }
  }

  void* create_stream(int) override {
    const std::lock_guard lock(all_.mutex);
    return all_.scheduler.make_queue(device_);
  }
  void destroy_stream(void* stream) noexcept override {
    const std::lock_guard lock(all_.mutex);
    all_.scheduler.destroy(static_cast<Queue*>(stream));
  }
  void synchronize_stream(StreamState& stream) override {
    const std::lock_guard lock(all_.mutex);
    drain(all_, stream);
  }
  bool stream_done(StreamState& stream) override {
    const std::lock_guard lock(all_.mutex);
    Queue& queue = Emulation::queue_of(stream);
    if (!queue.items.empty()) all_.scheduler.run_some(1 + all_.scheduler.draw(3));
    if (!queue.items.empty()) return false;
    all_.checker.finished(all_.checker.mark(queue.chain));
    return true;
  }
  void synchronize_device() override {
    const std::lock_guard lock(all_.mutex);
    all_.scheduler.drain_device(device_);
    all_.scheduler.for_each_queue([this](Queue& queue) {
      if (queue.device == device_) all_.checker.finished(all_.checker.mark(queue.chain));
    });
    if (!all_.scheduler.idle()) return;
    for (void* address : std::exchange(all_.leaving, {})) std::free(address);
  }

  void* create_event(bool) override { return new EventState; }
  void destroy_event(void* event) noexcept override {
    const std::lock_guard lock(all_.mutex);
    delete &as_event(event);
  }
  void record_event(void* handle, StreamState& stream) override {
    const std::lock_guard lock(all_.mutex);
    EventState& event = as_event(handle);
    if (CaptureSession* const session = stream.session()) {
      event.tape = Ref<OrderedTape>(static_cast<OrderedTape*>(session->builder()));
      event.frontier = event.tape->frontier(stream.id);
      event.mark = nullptr;
    } else {
      event.tape = nullptr;
      event.mark = push_mark(all_, Emulation::queue_of(stream));
    }
  }
  void wait_event(StreamState& stream, void* handle) override {
    const std::lock_guard lock(all_.mutex);
    const EventState& event = as_event(handle);
    if (event.tape) {
      event.tape->wait(stream.id, event.frontier);
    } else if (event.mark) {
      push_wait(all_, Emulation::queue_of(stream), event.mark);
    }
  }
  bool waits_for(Device other) const noexcept override {
    return other.is_cpu() && !other.is_host();
  }
  bool event_done(void* handle) override {
    const std::lock_guard lock(all_.mutex);
    const Ref<Mark> mark = as_event(handle).mark;
    if (!mark) return true;
    if (!mark->reached) all_.scheduler.run_some(1 + all_.scheduler.draw(3));
    if (!mark->reached || mark->late_polls-- > 0) return false;
    mark->late_polls = 0;
    all_.checker.finished(mark->clock);
    return true;
  }
  void synchronize_event(void* handle) override {
    const std::lock_guard lock(all_.mutex);
    const Ref<Mark> mark = as_event(handle).mark;
    if (!mark) return;
    all_.scheduler.run_until([&] { return mark->reached; }, "event.synchronize: the event");
    mark->late_polls = 0;
    all_.checker.finished(mark->clock);
  }
  float elapsed_ms(void* start, void* end) override {
    const std::lock_guard lock(all_.mutex);
    const Ref<Mark> first = as_event(start).mark;
    const Ref<Mark> second = as_event(end).mark;
    CAPSTAN_CHECK(first && second && first->reached && second->reached, StateError,
                  "event.elapsed_ms: an event is not done yet; synchronize it first");
    return std::chrono::duration<float, std::milli>(second->time - first->time).count();
  }

  // From pageable memory the bytes are taken at once; to pageable memory the call waits.
  void copy(void* to, const void* from, std::size_t bytes, StreamState& stream) override {
    cpu::CopyArgs args{to, from, bytes};
    if (stream.session() != nullptr) return cpu::submit(stream, cpu::copy_bytes, args);
    const std::lock_guard lock(all_.mutex);
    Queue& queue = Emulation::queue_of(stream);
    all_.checker.add_raw("copy", stream.id, from, to, bytes, queue.chain);
    std::unique_ptr<std::byte[]> staged;
    if (all_.checker.memory().is_pageable(from)) {
      staged = std::make_unique<std::byte[]>(bytes);
      std::memcpy(staged.get(), from, bytes);
      args.from = staged.get();
    }
    Item item = make_call(cpu::copy_bytes, args);
    item.staged = std::move(staged);
    all_.scheduler.push(queue, std::move(item));
    if (all_.checker.memory().is_pageable(to)) drain(all_, stream);
  }
  void fill(void* address, std::uint8_t value, std::size_t bytes, StreamState& stream) override {
    const cpu::FillArgs args{address, value, bytes};
    if (stream.session() != nullptr) return cpu::submit(stream, cpu::fill_bytes, args);
    const std::lock_guard lock(all_.mutex);
    Queue& queue = Emulation::queue_of(stream);
    all_.checker.add_raw("fill", stream.id, nullptr, address, bytes, queue.chain);
    all_.scheduler.push(queue, make_call(cpu::fill_bytes, args));
  }

  Ref<RefCounted> begin_capture(StreamState&, CaptureErrorMode) override {
    return make_ref<OrderedTape>();
  }
  Ref<NativeGraph> end_capture(CaptureSession& session) override {
    return make_graph(Ref<OrderedTape>(static_cast<OrderedTape*>(session.builder())));
  }

 private:
  static void* aligned(std::size_t bytes) {
    return std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  }

  const Device device_;
  Emulation& all_ = Emulation::instance();
};

}  // namespace

std::unique_ptr<DeviceRuntime> make_runtime(Device device) {
  Emulation& all = Emulation::instance();
  const std::lock_guard lock(all.mutex);
  CAPSTAN_CHECK(all.on, DeviceError, "device: there is one cpu, got ", device,
                "; tests make others with CpuEmulation");
  return std::make_unique<Runtime>(device);
}

void enqueue(StreamState& stream, cpu::KernelCall call, std::size_t bytes) {
  Emulation& all = Emulation::instance();
  Item item = make_call(call, bytes);
  const std::lock_guard lock(all.mutex);
  all.scheduler.push(Emulation::queue_of(stream), std::move(item));
}

void enqueue_graph(StreamState& stream, const Ref<Plan>& plan, Ref<Mark>& last) {
  Emulation& all = Emulation::instance();
  const std::lock_guard lock(all.mutex);
  Queue& queue = Emulation::queue_of(stream);
  if (last) push_wait(all, queue, last);
  Item item;
  item.kind = Item::Kind::graph;
  item.plan = plan;
  all.scheduler.push(queue, std::move(item));
  last = push_mark(all, queue);
}

}  // namespace capstan::emulated

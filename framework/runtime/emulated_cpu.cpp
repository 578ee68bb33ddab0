#include "framework/runtime/emulated_cpu.h"

#include <cstdlib>
#include <utility>

#include "framework/core/error.h"
#include "framework/runtime/emulated_checks.h"
#include "framework/runtime/emulation.h"

namespace capstan {

using emulated::Emulation;

Emulation& emulated::Emulation::instance() {
  static auto* const all = new Emulation;
  return *all;
}

emulated::Queue& emulated::Emulation::queue_of(StreamState& stream) {
  auto& queue = *static_cast<Queue*>(stream.native);
  queue.stream = stream.id;
  return queue;
}

CpuEmulation::CpuEmulation(EmulationOptions options) {
  Emulation& all = Emulation::instance();
  const std::lock_guard lock(all.mutex);
  CAPSTAN_CHECK(!all.on, StateError,
                "CpuEmulation: another one lives; end it first, one serves all devices");
  CAPSTAN_CHECK(options.late_polls >= 0, ValueError,
                "CpuEmulation: late_polls must be at least 0, got ", options.late_polls);
  all.on = true;
  all.options = options;
  all.scheduler.seed(options.seed);
  all.checker.reset(options.check_order, options.check_reads);
  detail::checks_operations.store(all.checker.on(), std::memory_order_release);
}

CpuEmulation::~CpuEmulation() {
  Emulation& all = Emulation::instance();
  const std::lock_guard lock(all.mutex);
  detail::checks_operations.store(false, std::memory_order_release);
  all.scheduler.for_each_queue([](emulated::Queue& queue) {
    for (emulated::Item& item : queue.items) {
      if (item.gate_is_open) *item.gate_is_open = true;
    }
  });
  try {
    all.scheduler.run_until([&] { return all.scheduler.idle(); }, "CpuEmulation");
  } catch (const std::exception&) {
    // A kernel failed: what is left runs when somebody waits for it.
  }
  if (all.scheduler.idle()) {
    for (void* address : std::exchange(all.leaving, {})) std::free(address);
  }
  all.checker.reset(false, false);
  all.on = false;
}

std::vector<std::string> CpuEmulation::reports() {
  Emulation& all = Emulation::instance();
  const std::lock_guard lock(all.mutex);
  return all.checker.reports();
}

std::vector<std::string> CpuEmulation::take_reports() {
  Emulation& all = Emulation::instance();
  const std::lock_guard lock(all.mutex);
  std::vector<std::string> found = all.checker.reports();
  all.checker.clear_reports();
  return found;
}

Gate::Gate(const Stream& stream, Where where) : is_open_(std::make_shared<bool>(false)) {
  const CallSite site(where);
  CAPSTAN_CHECK(stream.device().is_cpu() && !stream.device().is_host(), DeviceError,
                "Gate: only streams of emulated devices can be held, got one of ", stream.device());
  CAPSTAN_CHECK(!stream.is_capturing(), CaptureError, "Gate: stream ", stream.id(),
                " is capturing, and nothing runs there; make the gate outside of the capture");
  Emulation& all = Emulation::instance();
  emulated::Item item;
  item.kind = emulated::Item::Kind::gate;
  item.gate_is_open = is_open_;
  const std::lock_guard lock(all.mutex);
  all.scheduler.push(Emulation::queue_of(stream.state()), std::move(item));
}

Gate::~Gate() { open(); }

void Gate::open() noexcept {
  const std::lock_guard lock(Emulation::instance().mutex);
  *is_open_ = true;
}

void detail::check_operation(RecordedOp operation, StreamState& stream) {
  if (stream.device.is_gpu()) return;
  Emulation& all = Emulation::instance();
  const std::lock_guard lock(all.mutex);
  const std::vector<std::string> found =
      stream.device.is_host()
          ? all.checker.add_on_host(std::move(operation))
          : all.checker.add(std::move(operation), Emulation::queue_of(stream).chain);
  if (all.options.throw_reports && !found.empty()) throw StateError(found.front());
}

void detail::check_replay(const Recording& recording, std::string_view name, StreamState& stream) {
  for (RecordedOp operation : recording.operations) {
    operation.name += concat(" (replay of \"", name, "\")");
    operation.stream = stream.id;
    check_operation(std::move(operation), stream);
  }
}

}  // namespace capstan

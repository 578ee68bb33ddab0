#include "framework/runtime/faults.h"

#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "framework/core/error.h"
#include "framework/runtime/capture_session.h"
#include "framework/runtime/runtime.h"
#include "framework/runtime/stream.h"

namespace capstan {
namespace {

struct Site {
  const char* operation;
  const char* what;
  Where where;
  std::string module;
};

bool same_place(const Site& site, const char* operation, const char* what, const Where& where,
                const std::string& module) {
  return site.operation == operation && site.what == what && site.where.line() == where.line() &&
         site.where.column() == where.column() && site.where.file_name() == where.file_name() &&
         site.module == module;
}

struct Faults {
  std::mutex mutex;
  std::vector<Site> sites;
  std::array<std::array<std::atomic<FaultRecord*>, kMaxDevices>, 2> records{};
};

Faults& faults() {
  static auto* const instance = new Faults;  // kernels may write until the process ends
  return *instance;
}

std::atomic<FaultRecord*>& slot(Device device) {
  return faults()
      .records[static_cast<std::size_t>(device.type)][static_cast<std::size_t>(device.index)];
}

}  // namespace

namespace {

std::int32_t* make_gate(DeviceRuntime& owner) {
  auto* const gate = static_cast<std::int32_t*>(owner.allocate(sizeof(std::int32_t)));
  CAPSTAN_CHECK(gate != nullptr, OutOfMemory, "fault_record: no memory left on ", owner.device());
  // A stream of its own: this may happen while the current one captures.
  const Stream stream = Stream::create(owner.device());
  owner.make_current();
  owner.fill(gate, 0, sizeof(std::int32_t), stream.state());
  owner.synchronize_stream(stream.state());
  return gate;
}

}  // namespace

FaultRecord* fault_record(Device device) {
  if (FaultRecord* record = slot(device).load(std::memory_order_acquire)) return record;
  DeviceRuntime& owner = runtime(device);
  const std::lock_guard lock(faults().mutex);
  if (slot(device).load(std::memory_order_relaxed) == nullptr) {
    void* const memory = owner.allocate_pinned(sizeof(FaultRecord));
    CAPSTAN_CHECK(memory != nullptr, OutOfMemory, "fault_record: no page-locked memory left");
    auto* const record = new (memory) FaultRecord;
    if (device.is_gpu()) record->gate = make_gate(owner);
    slot(device).store(record, std::memory_order_release);
  }
  return slot(device).load(std::memory_order_relaxed);
}

std::int32_t register_fault_site(const char* operation, const char* what) {
  const Where& where = detail::call_context.where;
  std::string module = detail::module_path();
  const std::lock_guard lock(faults().mutex);
  std::vector<Site>& sites = faults().sites;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (same_place(sites[i], operation, what, where, module)) return static_cast<std::int32_t>(i);
  }
  sites.push_back({operation, what, where, std::move(module)});
  return static_cast<std::int32_t>(sites.size()) - 1;
}

void raise_faults(Device device) {
  FaultRecord* const record = slot(device).load(std::memory_order_acquire);
  if (record == nullptr) return;
  const std::atomic_ref<std::int32_t> state(record->state);
  if (state.load(std::memory_order_acquire) != 2) return;
  const FaultRecord found = *record;
  ++record->turn;
  state.store(0, std::memory_order_release);

  std::unique_lock lock(faults().mutex);
  const Site site = faults().sites[static_cast<std::size_t>(found.site)];
  lock.unlock();
  const CallSiteOverride where(site.where);
  throw IndexError(detail::concat(
      site.module.empty() ? "" : "in " + site.module + ": ", site.operation, ": ", site.what, ' ',
      found.value, " at position ", found.position, " is out of range [0, ", found.bound, ")"));
}

void raise_faults_if_done(Device device) {
  if (device.is_host() && !is_current_stream_capturing(device)) raise_faults(device);
}

}  // namespace capstan

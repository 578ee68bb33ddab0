#include "framework/runtime/runtime.h"

#include <array>
#include <atomic>
#include <mutex>

#include "framework/core/error.h"
#include "framework/runtime/cpu_runtime.h"
#include "framework/runtime/emulated_runtime.h"

namespace capstan {
namespace {

const detail::CudaProbe& cuda_probe() noexcept {
  static const auto* const probe = new detail::CudaProbe(detail::probe_cuda());
  return *probe;
}

std::unique_ptr<DeviceRuntime> make_runtime(Device device) {
  if (device.is_cpu()) {
    return device.is_host() ? cpu::make_runtime() : emulated::make_runtime(device);
  }
  CAPSTAN_CHECK(gpu_available(), DeviceError,
                "device: no GPU can be used: ", gpu_unavailable_reason(), "; use Device::cpu()");
  CAPSTAN_CHECK(device.index < gpu_count(), DeviceError, "device: ", device,
                " does not exist, there are ", gpu_count(), " GPUs");
  return detail::make_cuda_runtime(device.index);
}

// Never destroyed: tensors with static storage duration still need it while the process ends.
struct Registry {
  std::mutex mutex;
  std::array<std::array<std::atomic<DeviceRuntime*>, kMaxDevices>, 2> runtimes{};
};

Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

}  // namespace

DeviceRuntime& runtime(Device device) {
  CAPSTAN_CHECK(device.index >= 0 && device.index < kMaxDevices, DeviceError,
                "device: the index must be in [0, ", kMaxDevices, "), got ", int{device.index});
  auto& slot =
      registry()
          .runtimes[static_cast<std::size_t>(device.type)][static_cast<std::size_t>(device.index)];
  if (DeviceRuntime* existing = slot.load(std::memory_order_acquire)) return *existing;
  const std::lock_guard lock(registry().mutex);
  if (slot.load(std::memory_order_relaxed) == nullptr) {
    slot.store(make_runtime(device).release(), std::memory_order_release);
  }
  return *slot.load(std::memory_order_relaxed);
}

bool gpu_available() noexcept { return cuda_probe().count > 0; }
int gpu_count() noexcept { return cuda_probe().count; }
std::string gpu_unavailable_reason() { return cuda_probe().reason; }

}  // namespace capstan

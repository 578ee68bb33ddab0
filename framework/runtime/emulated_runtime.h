#pragma once

#include <cstddef>
#include <memory>

#include "framework/runtime/cpu_tape.h"
#include "framework/runtime/emulated_scheduler.h"
#include "framework/runtime/runtime.h"

namespace capstan::emulated {

/// @throws DeviceError unless a CpuEmulation lives.
[[nodiscard]] std::unique_ptr<DeviceRuntime> make_runtime(Device device);

/// Queues a kernel call of `bytes` of arguments, which are copied.
void enqueue(StreamState& stream, cpu::KernelCall call, std::size_t bytes);
/// Queues a launch that follows the one before, at whose end `last` is, and moves `last` on.
void enqueue_graph(StreamState& stream, const Ref<Plan>& plan, Ref<Mark>& last);

}  // namespace capstan::emulated

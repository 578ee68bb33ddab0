#pragma once

#include <mutex>
#include <vector>

#include "framework/runtime/emulated_cpu.h"
#include "framework/runtime/emulated_scheduler.h"
#include "framework/runtime/stream.h"

namespace capstan::emulated {

/// What all emulated devices share.
struct Emulation {
  /// Never destroyed: tensors with static storage duration still need it while the process ends.
  [[nodiscard]] static Emulation& instance();

  /// The queue behind `stream`, which is of an emulated device.
  [[nodiscard]] static Queue& queue_of(StreamState& stream);

  std::mutex mutex;
  bool on = false;  // a CpuEmulation lives
  EmulationOptions options;
  Scheduler scheduler;
  Checker checker;
  std::vector<void*> leaving;  // memory to free once nothing is queued
};

}  // namespace capstan::emulated

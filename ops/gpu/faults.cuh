// How a kernel reports bad data. The record lies in mapped host memory and the host reads it only
// after it has waited for the kernel, so an atomic that is one for this device alone suffices.
#pragma once

#include "framework/runtime/faults.h"

namespace capstan::gpu {

/// Keeps the first report.
__device__ inline void report_fault(FaultRecord* record, std::int32_t site, std::int64_t position,
                                    std::int64_t value, std::int64_t bound) {
  // A plain look first: the exchange crosses the bus, and every row may be bad.
  if (*static_cast<volatile std::int32_t*>(&record->state) != 0) return;
  if (atomicCAS_system(&record->state, 0, 1) != 0) return;
  record->site = site;
  record->position = position;
  record->value = value;
  record->bound = bound;
  __threadfence_system();
  *static_cast<volatile std::int32_t*>(&record->state) = 2;
}

}  // namespace capstan::gpu

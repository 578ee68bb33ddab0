// How a kernel reports bad data. The record lies in mapped host memory, where an atomic may not
// exist, so the first report is elected in device memory. The host reads only after it has waited.
#pragma once

#include "framework/runtime/faults.h"

namespace capstan::gpu {

/// Keeps the first report.
__device__ inline void report_fault(FaultRecord* record, std::int32_t site, std::int64_t position,
                                    std::int64_t value, std::int64_t bound) {
  // A plain look first: every row may be bad.
  if (*static_cast<volatile std::int32_t*>(&record->state) != 0) return;
  const std::int32_t turn = *static_cast<volatile std::int32_t*>(&record->turn);
  if (atomicCAS(record->gate, turn, turn + 1) != turn) return;
  record->site = site;
  record->position = position;
  record->value = value;
  record->bound = bound;
  __threadfence_system();
  *static_cast<volatile std::int32_t*>(&record->state) = 2;
}

}  // namespace capstan::gpu

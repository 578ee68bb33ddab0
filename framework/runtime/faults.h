#pragma once

#include <cstdint>

#include "framework/core/device.h"

namespace capstan {

/// How a kernel reports bad data (a label out of range, say) without stopping: the first report
/// wins, and the host raises it at the next point where it waits for the device. On the GPU it lies
/// in host memory that kernels can write, where not every system has atomics; so the first report
/// is found at `gate`, in device memory, which counts the reports raised so far.
struct FaultRecord {
  std::int32_t state = 0;        ///< 0: none, 2: complete
  std::int32_t site = 0;         ///< from `register_fault_site`
  std::int32_t turn = 0;         ///< who moves `gate` on from here may write
  std::int32_t* gate = nullptr;  ///< null on the CPU
  std::int64_t position = 0;
  std::int64_t value = 0;
  std::int64_t bound = 0;  ///< valid values are in [0, bound)
};

/// The record of `device`, at an address that its kernels can write.
[[nodiscard]] FaultRecord* fault_record(Device device);

/// A small number for this operation at the current user's line and module path; the same place
/// gets the same number. `what` names the values, e.g. "label".
[[nodiscard]] std::int32_t register_fault_site(const char* operation, const char* what);

/// Throws IndexError for what a kernel of `device` reported, and clears it:
/// "cross_entropy: label 12 at position 3 is out of range [0, 10)". Does not wait for the device.
void raise_faults(Device device);

/// For the end of an operation that can fault: raises at once where the work has already run (the
/// CPU itself outside of a capture).
void raise_faults_if_done(Device device);

namespace cpu {
/// For CPU kernels: keeps the first report.
inline void report_fault(FaultRecord* record, std::int32_t site, std::int64_t position,
                         std::int64_t value, std::int64_t bound) noexcept {
  if (record->state != 0) return;
  record->site = site;
  record->position = position;
  record->value = value;
  record->bound = bound;
  record->state = 2;
}
}  // namespace cpu

}  // namespace capstan

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/core/call_site.h"
#include "framework/runtime/stream.h"

namespace capstan {

struct EmulationOptions {
  /// Decides the order of the work, and how late events are. The same calls from one thread under
  /// the same seed run in the same order.
  std::uint64_t seed = 1;
  /// A finished event answers "not done" to at most so many queries.
  int late_polls = 3;
  bool check_order = true;  ///< report two uses of the same memory that nothing orders
  bool check_reads = true;  ///< report reads of memory that was never written, or freed
  /// Throw StateError with the report at the operation that comes second, which does not run then.
  bool throw_reports = false;
};

/// For tests. While it lives, `Device::cpu(1)` to `Device::cpu(15)` are devices whose streams are
/// queues, as those of a GPU are, so that a missing wait shows without one. Nothing runs until
/// someone waits; then any work that may run runs, on the waiting thread, in any legal order that
/// the seed chooses, one kernel at a time: streams, events and the recorded edges of replayed
/// graphs order it, the order of the calls does not. Asking makes some progress.
///
/// Fresh and freed memory holds bytes 0xDB. Every announced operation is checked, also of replays,
/// and host operations against work in flight: for reads of such memory, and for races, by who
/// waits for whom, not by the order that came about. Reports collect; they change nothing else.
///
/// Devices that were used stay usable afterwards, for what outlives the scope.
class [[nodiscard]] CpuEmulation {
 public:
  /// @throws StateError  if another one lives.
  explicit CpuEmulation(EmulationOptions options = {});
  /// Opens what is still shut and runs what is left.
  ~CpuEmulation();
  CpuEmulation(const CpuEmulation&) = delete;
  CpuEmulation& operator=(const CpuEmulation&) = delete;

  /// What was found so far, oldest first; the same text once.
  [[nodiscard]] static std::vector<std::string> reports();
  /// Returns the reports and forgets them.
  static std::vector<std::string> take_reports();
};

/// Holds an emulated stream: what is submitted after it does not start before `open`. To wait for
/// such work is an error.
class Gate {
 public:
  /// @throws DeviceError for a stream of another device, CaptureError if it captures.
  explicit Gate(const Stream& stream, Where where = Where::current());
  /// Opens it.
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open() noexcept;

 private:
  std::shared_ptr<bool> is_open_;
};

}  // namespace capstan

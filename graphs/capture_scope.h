#pragma once

#include <functional>
#include <optional>

#include "framework/tensor/write_journal.h"
#include "graphs/graph.h"

namespace capstan {

/// Captures into `graph` on a side stream, which is current while the scope lives and starts after
/// what the old current stream has queued. `finish` ends the capture; a scope left without it, by
/// an exception above all, abandons the capture. Either way the current stream, the allocator's
/// routing and the generators are as before, and the next capture works; after a capture that
/// failed, gradients and tensors given other memory are so too.
class [[nodiscard]] CaptureScope {
 public:
  /// @throws StateError, CaptureError, CudaError; nothing has changed then.
  explicit CaptureScope(Graph& graph, CaptureOptions options = {}, Where where = Where::current());
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

  /// Afterwards the old stream is current. @throws CaptureError, CudaError; the graph is empty
  /// then.
  void finish(Where where = Where::current());

 private:
  void close() noexcept;

  Graph& graph_;
  std::optional<StreamGuard> guard_;  // while the capture runs
  std::optional<WriteJournal> journal_;
};

/// Captures what `body` submits. An exception of `body` comes out unchanged after everything is
/// restored; `graph.last_failure()` tells what was wrong with the capture itself.
void capture(Graph& graph, const std::function<void()>& body, CaptureOptions options = {},
             Where where = Where::current());

namespace detail {
/// The stream on which the calling thread captures for `device`. It is always the same one, since
/// blocks of a pool belong to streams: captures that share a pool share its memory on it.
[[nodiscard]] Stream capture_stream(Device device);
}  // namespace detail

}  // namespace capstan

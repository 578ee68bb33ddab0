#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/memory/caching_allocator.h"
#include "framework/runtime/capture_session.h"
#include "framework/tensor/tensor.h"

namespace capstan {

struct GraphOptions {
  std::string name = "graph";  ///< for messages and reports
  bool keep_graph = false;     ///< keep the template: instantiate again, dump natively
};

/// What becomes of memory that a graph reads or writes and did not allocate itself.
enum class ForeignMemory : std::uint8_t {
  retain,  ///< the graph keeps it until `reset`: a replay reads it even if its tensors are gone
  check    ///< the graph does not keep it: a replay after it was freed is an error
};

struct CaptureOptions {
  GraphPool pool{};  ///< shared with other captures; empty: a pool of its own
  CaptureErrorMode error_mode = CaptureErrorMode::global;
  /// With several streams: two operations that use the same memory, one of them writing, and that
  /// no chain of waits orders, fail the capture.
  bool check_order = true;
  /// A capture without any operation fails, instead of a warning on stderr.
  bool refuse_empty = false;
  ForeignMemory foreign_memory = ForeignMemory::retain;
};

class Graph;

namespace detail {
/// What was there before the capture, and `graph` keeps alive: storages and other objects.
/// @throws StateError  without a successful capture.
[[nodiscard]] const std::vector<Ref<const RefCounted>>& retained_by(const Graph& graph);
}  // namespace detail

/// A recorded sequence of device work. `capture_begin` and `capture_end` bracket the calls to
/// record; nothing between them runs. `replay` runs all of it again on the same addresses: no
/// dispatch, no allocation, no host work per operation. The graph keeps alive every storage that it
/// reads or writes (unless told otherwise), and the memory of its pool, until `reset` or
/// destruction. A replay is refused once a tensor that the graph used has been given other memory
/// by `set_data`, since it would go on with the old one. What the capture computes cannot be read
/// before the first replay has computed it.
///
///     Graph graph(Device::gpu());
///     capture(graph, [&] { y.copy_(x * 2.0); });
///     x.fill_(3.0);
///     graph.replay();  // y holds 6
///
/// States: empty -> capturing -> captured (keep_graph, not yet instantiated) -> ready; `reset`
/// leads back to empty from any. A call that the state does not allow throws StateError, naming
/// graph and state, and changes nothing. Not copyable or movable; use from one thread at a time.
class Graph {
 public:
  explicit Graph(Device device = Device::cpu(), GraphOptions options = {});
  /// Abandons a capture in progress.
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Starts recording what is submitted to the current stream of the device, which must not be its
  /// default stream. On failure the graph is as before. @throws StateError, CaptureError,
  /// CudaError.
  void capture_begin(CaptureOptions options = {}, Where where = Where::current());
  /// Ends recording and, unless keep_graph, instantiates. On failure the graph is empty and nothing
  /// is left of the capture. @throws StateError, CudaError; CaptureError, also for a missing wait
  /// between two streams (see CaptureOptions::check_order).
  void capture_end(Where where = Where::current());
  /// Ends a capture in progress and drops it; does nothing otherwise.
  void abandon() noexcept;
  /// Makes the graph executable (again, with keep_graph). The old executable stays if it fails.
  void instantiate(Where where = Where::current());
  /// Enqueues one run on the current stream of the device, the default one included, and returns;
  /// on the CPU itself it has run. Work reported bad by an earlier replay's kernels (a label out of
  /// range) is raised here. @throws StateError, also if memory that the graph uses was freed or a
  /// tensor left it.
  ///
  /// While that stream captures, the replay becomes a part of that capture, which keeps all that it
  /// needs, also past `reset`: a graph of graphs. Its random numbers are drawn by each replay of
  /// the capture, as if its operations had been captured there. @throws CaptureError if that
  /// capture, or the graph's part in another one, allocates from the same pool, if the graph does
  /// not hold the memory that it uses, or if the thread captures on another device.
  void replay(Where where = Where::current());
  /// Gives everything back; waits for replays in flight. Hooks stay.
  void reset();

  /// Hooks are called on the calling thread, in the order of registration. They must not capture
  /// into, instantiate, replay or reset the graph itself: StateError. An exception of one skips the
  /// rest and comes out of the call, which is otherwise complete: the graph stays usable. Only a
  /// replay whose start fails does not take place, and no end hook is called. Replays that become
  /// part of a capture count, once, when they are captured.
  /// @return  a number for `remove_hook`. @throws ValueError  for an empty function.
  using Hook = std::function<void()>;
  int register_capture_end_hook(Hook hook);       ///< capture succeeded, not yet instantiated
  int register_post_instantiate_hook(Hook hook);  ///< after each instantiation
  int register_replay_start_hook(Hook hook);      ///< before anything is enqueued
  int register_replay_end_hook(Hook hook);        ///< it was enqueued, or failed to be
  /// @throws ValueError  if there is no such hook.
  void remove_hook(int id);

  /// Keeps `object` until `reset` or destruction, and as long as a capture contains a replay of
  /// this graph. @throws StateError  unless capturing or captured.
  void retain_object(Ref<const RefCounted> object, Where where = Where::current());
  void retain_object(std::shared_ptr<const void> object, Where where = Where::current());

  [[nodiscard]] Device device() const noexcept;
  [[nodiscard]] const std::string& name() const noexcept;
  [[nodiscard]] bool is_ready() const noexcept;
  /// Why the last capture into this graph failed, empty if it did not. Of one that an exception of
  /// the captured code ended, what was wrong with the capture itself besides, a fork that was not
  /// joined or a failed CUDA call: the exception that comes out is that of the code.
  [[nodiscard]] const std::string& last_failure() const noexcept;
  /// @throws StateError  without a successful capture.
  [[nodiscard]] GraphPool pool(Where where = Where::current()) const;
  /// All pools that the graph keeps: its own first, then those of graphs replayed in the capture.
  /// @throws StateError  as `pool`.
  [[nodiscard]] std::vector<GraphPool> pools(Where where = Where::current()) const;
  /// What was captured: operations with names, lines, accesses and order.
  [[nodiscard]] const Recording& recording(Where where = Where::current()) const;
  [[nodiscard]] std::int64_t replay_count() const noexcept;
  /// CUDA's own handles, null on the CPU: the template (cudaGraph_t), which may be edited and
  /// instantiated again, valid until `reset`; and the executable (cudaGraphExec_t), valid until the
  /// next `instantiate` or `reset`.
  /// @throws StateError  without a template, which only keep_graph (and a capture end hook) has, or
  ///   before it is instantiated.
  [[nodiscard]] void* raw_graph(Where where = Where::current()) const;
  [[nodiscard]] void* raw_exec(Where where = Where::current()) const;
  /// Writes the recording as a DOT graph. Needs no flag set before the capture.
  /// @throws StateError, DataError if the file cannot be written.
  void debug_dump(const std::string& path, Where where = Where::current()) const;
  [[nodiscard]] std::string to_dot(Where where = Where::current()) const;

 private:
  friend const std::vector<Ref<const RefCounted>>& detail::retained_by(const Graph& graph);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace capstan

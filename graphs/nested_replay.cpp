#include "graphs/nested_replay.h"

#include <utility>
#include <vector>

#include "framework/core/error.h"

namespace capstan {
namespace {

// As the capture that contains them shows them.
std::vector<RecordedOp> operations_of(const ReplayedGraph& graph) {
  std::vector<RecordedOp> operations = graph.recording.operations;
  for (RecordedOp& operation : operations) {
    operation.graph =
        operation.graph.empty() ? graph.name : detail::concat(graph.name, '/', operation.graph);
    for (auto* const accesses : {&operation.reads, &operation.writes}) {
      for (Access& access : *accesses) {
        // Tensors made in the graph's own capture may be gone; their memory is the pool's.
        if (access.pool == graph.pools->own().id()) access.owner = nullptr;
      }
    }
  }
  return operations;
}

}  // namespace

void capture_replay(const ReplayedGraph& graph, StreamState& stream) {
  CaptureSession& session = *stream.session();
  for (const GraphPool& pool : graph.pools->all()) {
    CAPSTAN_CHECK(pool.id() != session.pool(), CaptureError, "graph.replay: graph \"", graph.name,
                  "\" uses the pool that this capture allocates from, and would overwrite what the "
                  "capture holds there; capture one of them into another pool");
  }
  std::vector<RecordedOp> operations = operations_of(graph);
  session.retain(graph.pools);
  for (const Ref<const RefCounted>& object : graph.retained) session.retain(object);
  for (const Ref<ReplayPrologue>& prologue : graph.prologues) session.retain(prologue);

  for (const Ref<ReplayPrologue>& prologue : graph.prologues) prologue->record_replay(stream);
  session.announce_replay(std::move(operations), stream);
  graph.exec.launch(stream);
}

}  // namespace capstan

#pragma once

#include <span>
#include <string>

#include "framework/runtime/capture_session.h"
#include "graphs/replay_order.h"

namespace capstan {

/// A graph that is ready, seen by a capture that is to contain a replay of it.
struct ReplayedGraph {
  const std::string& name;
  const Ref<ReplayPools>& pools;
  const Recording& recording;
  std::span<const Ref<ReplayPrologue>> prologues;
  std::span<const Ref<const RefCounted>> retained;
  NativeExec& exec;
};

/// Makes a replay of `graph` the next work of `stream`, which is current and captures. The capture
/// keeps all that the replay needs: the graph may be reset afterwards. Random numbers are those of
/// the capture that contains it. @throws CaptureError  if the capture allocates from one of the
/// graph's pools.
void capture_replay(const ReplayedGraph& graph, StreamState& stream);

}  // namespace capstan

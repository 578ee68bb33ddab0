#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/runtime/capture_session.h"
#include "framework/tensor/storage.h"
#include "graphs/foreign_storages.h"
#include "graphs/replay_order.h"

namespace capstan {

/// What a successful capture leaves. Destroyed from the bottom up: the executable first, its memory
/// last.
struct Captured {
  Ref<ReplayPools> pools;
  Ref<NativeGraph> native;  // null once executable, unless kept
  Recording recording;
  std::vector<Ref<ReplayPrologue>> prologues;
  std::vector<Ref<const RefCounted>> retained;
  std::vector<Storage*> written;  // among `retained`
  ForeignStorages foreign;
  bool may_be_freed = false;  // the foreign ones
  Ref<RefCounted> newborns;   // until the first replay
  std::unique_ptr<NativeExec> exec;
  std::int64_t replays = 0;
};

/// Destroys it when all its replays are done: at once, or, while any capture is in progress, after
/// the last one, since waiting for the device would break it.
void release(Captured captured);
/// Destroys what waits so, unless a capture is in progress.
void release_parked() noexcept;

/// Of `retained`, what replays write without passing through an operation that would count it.
[[nodiscard]] std::vector<Storage*> written_among(
    const std::vector<Ref<const RefCounted>>& retained, const Recording& recording);

}  // namespace capstan

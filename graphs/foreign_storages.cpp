#include "graphs/foreign_storages.h"

#include "framework/core/counters.h"
#include "framework/core/error.h"

namespace capstan {
namespace {

// "float32[4] that mul in net.fc1 reads (at FILE:LINE)".
std::string describe_use(const Recording& recording, const RefCounted* storage) {
  for (const RecordedOp& operation : recording.operations) {
    for (const bool writes : {false, true}) {
      for (const Access& access : writes ? operation.writes : operation.reads) {
        if (access.owner != storage) continue;
        return detail::concat(access.dtype, access.shape, " that ", operation.name,
                              operation.module.empty() ? "" : " in " + operation.module,
                              writes ? " writes" : " reads", " (at ", operation.where.file_name(),
                              ':', operation.where.line(), ')');
      }
    }
  }
  return "memory that it uses";
}

}  // namespace

ForeignStorages::ForeignStorages(const std::vector<Ref<const RefCounted>>& retained)
    : rebinds_(counters().rebinds.load(std::memory_order_relaxed)) {
  for (const Ref<const RefCounted>& object : retained) {
    const auto* storage = dynamic_cast<const Storage*>(object.get());
    if (storage == nullptr) continue;
    Ref<StorageWatch> watch = storage->watch();
    const std::int64_t times_left = watch->times_left();
    known_.push_back({object.get(), std::move(watch), times_left});
  }
}

void ForeignStorages::check(const std::string& graph, const Recording& recording,
                            bool may_be_freed) {
  if (may_be_freed) {
    for (const Known& known : known_) {
      CAPSTAN_CHECK(!known.watch->freed(), StateError, "graph.replay: graph \"", graph,
                    "\": ", describe_use(recording, known.storage),
                    " was freed after the capture; keep the tensor, or capture with "
                    "{.foreign_memory = ForeignMemory::retain}");
    }
  }
  const std::int64_t rebinds = counters().rebinds.load(std::memory_order_relaxed);
  if (rebinds == rebinds_) [[likely]]
    return;
  for (const Known& known : known_) {
    CAPSTAN_CHECK(known.watch->times_left() <= known.times_left, StateError,
                  "graph.replay: graph \"", graph, "\": ", describe_use(recording, known.storage),
                  " is no longer the memory of its tensor, which set_data gave other memory after "
                  "the capture; write the new values with copy_, or capture again");
  }
  rebinds_ = rebinds;
}

}  // namespace capstan

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/runtime/recording.h"
#include "framework/tensor/storage.h"

namespace capstan {

/// The storages that a graph uses and did not make: whether they are still what the capture saw.
class ForeignStorages {
 public:
  ForeignStorages() = default;
  explicit ForeignStorages(const std::vector<Ref<const RefCounted>>& retained);

  /// Constant time while no tensor of the process was given other memory; else, and with
  /// `may_be_freed` always, one load a storage. @throws StateError naming `graph`, the tensor as
  /// the first operation of `recording` saw it, that operation and its line.
  void check(const std::string& graph, const Recording& recording, bool may_be_freed);

 private:
  struct Known {
    const RefCounted* storage;  // to compare, it may be gone
    Ref<StorageWatch> watch;
    std::int64_t times_left;
  };
  std::vector<Known> known_;
  std::int64_t rebinds_ = 0;  // the process's count at the last check
};

}  // namespace capstan

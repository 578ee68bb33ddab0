#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "framework/runtime/capture_session.h"
#include "framework/tensor/storage.h"

namespace capstan {

/// The storages that a capture made and that still live. Nothing has written them before the first
/// replay, whatever they seem to hold.
class NewbornStorages final : public RefCounted {
 public:
  /// Those of `session`, with `storage` added.
  [[nodiscard]] static Ref<RefCounted> of(CaptureSession& session, Storage& storage);

  /// Notes that a replay of `session`'s graph replays the graph whose storages `newborns` are.
  static void nest(CaptureSession& session, Ref<RefCounted> newborns);

  /// See Storage::refuse_use.
  void refuse_use(const std::shared_ptr<const std::string>& reason);
  /// Those of nested captures as well.
  void allow_use() noexcept;
  void forget(Storage& storage) noexcept;

 private:
  std::mutex mutex_;
  std::unordered_set<Storage*> alive_;
  std::vector<Ref<RefCounted>> nested_;
};

}  // namespace capstan

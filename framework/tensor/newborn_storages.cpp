#include "framework/tensor/newborn_storages.h"

namespace capstan {

namespace {

Ref<RefCounted> list_of(CaptureSession& session) {
  return session.newborns([]() -> Ref<RefCounted> { return make_ref<NewbornStorages>(); });
}

}  // namespace

Ref<RefCounted> NewbornStorages::of(CaptureSession& session, Storage& storage) {
  Ref<RefCounted> list = list_of(session);
  auto& storages = static_cast<NewbornStorages&>(*list);
  const std::lock_guard lock(storages.mutex_);
  storages.alive_.insert(&storage);
  return list;
}

void NewbornStorages::nest(CaptureSession& session, Ref<RefCounted> newborns) {
  const Ref<RefCounted> list = list_of(session);
  auto& storages = static_cast<NewbornStorages&>(*list);
  const std::lock_guard lock(storages.mutex_);
  storages.nested_.push_back(std::move(newborns));
}

void NewbornStorages::refuse_use(const std::shared_ptr<const std::string>& reason) {
  const std::lock_guard lock(mutex_);
  for (Storage* storage : alive_) storage->refuse_use(reason);
}

void NewbornStorages::allow_use() noexcept {
  const std::lock_guard lock(mutex_);
  for (Storage* storage : alive_) storage->allow_use();
  for (const Ref<RefCounted>& nested : nested_) {
    static_cast<NewbornStorages&>(*nested).allow_use();
  }
}

void NewbornStorages::forget(Storage& storage) noexcept {
  const std::lock_guard lock(mutex_);
  alive_.erase(&storage);
}

}  // namespace capstan

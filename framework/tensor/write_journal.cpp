#include "framework/tensor/write_journal.h"

#include <unordered_set>
#include <vector>

#include "framework/runtime/runtime.h"
#include "framework/runtime/stream.h"

namespace capstan {
namespace {

constinit thread_local WriteJournal* current_journal = nullptr;

void copy_memory(const Storage& to, const Storage& from) {
  StreamState& stream = detail::current_stream_state(to.device());
  stream.runtime.make_current();
  stream.runtime.copy(to.data(), from.data(), to.bytes(), stream);
}

}  // namespace

struct WriteJournal::Impl {
  struct Entry {
    Ref<Storage> storage;  // null: host state
    Ref<Storage> saved;
    std::int64_t version = 0;
    std::function<void()> undo;
  };

  JournalMode mode;
  WriteJournal* outer;
  std::uint64_t first_serial = 0;  // storages from here on are made within
  std::unordered_set<const void*> known;
  std::vector<Entry> entries;
  bool open = true;
};

WriteJournal::WriteJournal(JournalMode mode) : impl_(std::make_unique<Impl>()) {
  impl_->mode = mode;
  impl_->outer = current_journal;
  impl_->first_serial = make_ref<Storage>(Device::cpu(), nullptr, 0, nullptr)->serial();
  current_journal = this;
}

WriteJournal::~WriteJournal() {
  if (impl_->open) rollback();
}

WriteJournal* WriteJournal::current() noexcept { return current_journal; }

void WriteJournal::keep(const Ref<Storage>& storage) {
  if (impl_->outer != nullptr) impl_->outer->keep(storage);
  if (impl_->mode != JournalMode::everything || storage->serial() >= impl_->first_serial) return;
  if (storage->bytes() == 0 || !impl_->known.insert(storage.get()).second) return;
  auto saved = make_ref<Storage>(storage->device(), storage->bytes());
  copy_memory(*saved, *storage);
  impl_->entries.push_back({storage, std::move(saved), storage->version(), nullptr});
}

void WriteJournal::keep_host(const void* key, std::function<void()> undo) {
  if (impl_->outer != nullptr) impl_->outer->keep_host(key, undo);
  if (!impl_->known.insert(key).second) return;
  impl_->entries.push_back({nullptr, nullptr, 0, std::move(undo)});
}

void WriteJournal::rollback() {
  commit();
  for (auto entry = impl_->entries.rbegin(); entry != impl_->entries.rend(); ++entry) {
    if (entry->undo) {
      entry->undo();
    } else {
      copy_memory(*entry->storage, *entry->saved);
      entry->storage->set_version(entry->version);
    }
  }
  impl_->entries.clear();
}

void WriteJournal::commit() noexcept {
  if (!impl_->open) return;
  impl_->open = false;
  current_journal = impl_->outer;
}

}  // namespace capstan

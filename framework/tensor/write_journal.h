#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "framework/core/ref.h"
#include "framework/tensor/storage.h"

namespace capstan {

enum class JournalMode : std::uint8_t {
  everything,  ///< memory and host state: for a trial run
  host_state   ///< host state alone: for a capture, whose writes do not run
};

/// Lets a trial run leave no trace. While one is active on a thread, the first write to each
/// storage that existed before saves a copy of it, and host state that announces itself is noted;
/// `rollback` puts everything back. Storages made meanwhile cost nothing.
class WriteJournal {
 public:
  explicit WriteJournal(JournalMode mode = JournalMode::everything);
  /// Rolls back if nobody did.
  ~WriteJournal();
  WriteJournal(const WriteJournal&) = delete;
  WriteJournal& operator=(const WriteJournal&) = delete;

  /// The journal of the calling thread, or null.
  [[nodiscard]] static WriteJournal* current() noexcept;

  /// Saves `storage` if this is its first write; call before the write is submitted.
  void keep(const Ref<Storage>& storage);
  /// Notes how to restore the host state identified by `key`; the first call for a key counts.
  void keep_host(const void* key, std::function<void()> undo);
  /// Restores everything, newest first, on the streams current now, and ends the journal.
  void rollback();
  /// Ends the journal and lets everything stand as it is.
  void commit() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace capstan

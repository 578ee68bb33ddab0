#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "framework/core/ref.h"
#include "framework/runtime/dispatch.h"

namespace capstan::cpu {

/// A kernel call whose arguments lie elsewhere.
struct KernelCall {
  KernelThunk thunk = nullptr;
  void (*kernel)() = nullptr;
  const void* args = nullptr;

  void run() const { thunk(kernel, args); }
};

/// The kernel calls of one capture in the order of submission, which is always a legal order.
/// Arguments are copied into chunks that never move.
class Tape : public RefCounted {
 public:
  /// Thread-safe. `stream` takes part in the capture.
  void append(StreamState& stream, KernelCall call, std::size_t bytes);
  /// Appends the calls of `tape`, whose capture has ended, one after the other, and keeps it.
  void append_replay(StreamState& stream, Ref<const Tape> tape);

  void run() const {
    for (const KernelCall& call : calls_) call.run();
  }
  /// Valid once the capture has ended.
  [[nodiscard]] const std::vector<KernelCall>& calls() const noexcept { return calls_; }

 private:
  /// A call was appended by `stream`; the tape's lock is held.
  virtual void appended(StreamState&) {}
  [[nodiscard]] const void* store(const void* args, std::size_t bytes);

  std::mutex mutex_;
  std::vector<KernelCall> calls_;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::vector<Ref<const Tape>> replayed_;  // hold the arguments of their calls
  std::size_t used_ = 0;
};

struct CopyArgs {
  void* to;
  const void* from;
  std::size_t bytes;
};
void copy_bytes(const CopyArgs& args);

struct FillArgs {
  void* address;
  std::uint8_t value;
  std::size_t bytes;
};
void fill_bytes(const FillArgs& args);

}  // namespace capstan::cpu

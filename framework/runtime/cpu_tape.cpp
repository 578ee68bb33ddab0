#include "framework/runtime/cpu_tape.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace capstan::cpu {
namespace {

constexpr std::size_t kChunkBytes = 64 * 1024;

}  // namespace

void Tape::append(StreamState& stream, KernelCall call, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  call.args = store(call.args, bytes);
  calls_.push_back(call);
  appended(stream);
}

void Tape::append_replay(StreamState& stream, Ref<const Tape> tape) {
  const std::lock_guard lock(mutex_);
  for (const KernelCall& call : tape->calls()) {
    calls_.push_back(call);
    appended(stream);
  }
  replayed_.push_back(std::move(tape));
}

const void* Tape::store(const void* args, std::size_t bytes) {
  const std::size_t padded = (bytes + 15) / 16 * 16;
  if (chunks_.empty() || used_ + padded > kChunkBytes) {
    chunks_.push_back(std::make_unique<std::byte[]>(std::max(padded, kChunkBytes)));
    used_ = 0;
  }
  std::byte* const place = chunks_.back().get() + used_;
  std::memcpy(place, args, bytes);
  used_ += padded;
  return place;
}

void copy_bytes(const CopyArgs& args) { std::memmove(args.to, args.from, args.bytes); }

void fill_bytes(const FillArgs& args) { std::memset(args.address, args.value, args.bytes); }

}  // namespace capstan::cpu

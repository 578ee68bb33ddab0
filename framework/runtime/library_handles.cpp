#include "framework/runtime/library_handles.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/core/error.h"
#include "framework/runtime/capture_session.h"
#include "framework/runtime/cuda_blas_check.h"
#include "framework/runtime/cuda_capture_mode.h"
#include "framework/runtime/cuda_check.h"
#include "framework/runtime/cuda_stream.h"
#include "framework/runtime/runtime.h"

namespace capstan {
namespace {

constexpr std::size_t kTicketBytes = 256;  // keeps what follows aligned
constexpr std::size_t kSmallestScratch = std::size_t{1} << 20;

// Id of the capture (0 outside of any) and of the stream. Ids are never used twice, addresses are.
using ScratchKey = std::pair<std::uint64_t, std::uint64_t>;

class ScratchBuffer final : public RefCounted {
 public:
  ScratchBuffer(StreamState& stream, ScratchKey key, std::size_t bytes);
  ~ScratchBuffer() override;

  [[nodiscard]] Scratch view() const noexcept {
    return {static_cast<unsigned*>(address_), static_cast<std::byte*>(address_) + kTicketBytes,
            bytes_};
  }
  [[nodiscard]] ScratchKey key() const noexcept { return key_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  DeviceRuntime& runtime_;
  const ScratchKey key_;
  const std::size_t bytes_;
  void* const address_;
};

struct ScratchTable {
  std::mutex mutex;
  std::map<ScratchKey, ScratchBuffer*> newest;
  // Buffers of eager work. Outgrown ones stay, since queued work may still use them.
  std::unordered_map<void*, std::vector<Ref<ScratchBuffer>>> owned;
};

// Neither table is ever destroyed: tensors with static storage duration may outlive it.
ScratchTable& scratch_table() {
  static auto* const table = new ScratchTable;
  return *table;
}

struct DeviceHandles {
  std::mutex mutex;
  cublasLtHandle_t blas = nullptr;
  cudaStream_t setup = nullptr;
};

DeviceHandles& handles_of(Device device) {
  static auto* const handles = new std::array<DeviceHandles, kMaxDevices>;
  return (*handles)[static_cast<std::size_t>(device.index)];
}

void* allocate_scratch(StreamState& stream, std::size_t bytes) {
  void* const address = stream.runtime.allocate(kTicketBytes + bytes);
  CAPSTAN_CHECK(address != nullptr, OutOfMemory, "scratch: out of GPU memory, asked for ",
                (kTicketBytes + bytes) >> 10, " KiB for the workspace of stream ", stream.id,
                "; call empty_cache or lower the batch size");
  return address;
}

// On a stream of its own, since on a stream that captures the write would wait for a replay.
void clear_ticket(StreamState& stream, void* address) {
  const RelaxedCaptureMode relaxed;
  DeviceHandles& handles = handles_of(stream.device);
  const std::lock_guard lock(handles.mutex);
  stream.runtime.make_current();
  if (handles.setup == nullptr) {
    CAPSTAN_CUDA_CHECK(cudaStreamCreateWithFlags(&handles.setup, cudaStreamNonBlocking));
  }
  CAPSTAN_CUDA_CHECK(cudaMemsetAsync(address, 0, kTicketBytes, handles.setup));
  CAPSTAN_CUDA_CHECK(cudaStreamSynchronize(handles.setup));
}

ScratchBuffer::ScratchBuffer(StreamState& stream, ScratchKey key, std::size_t bytes)
    : runtime_(stream.runtime),
      key_(key),
      bytes_(bytes),
      address_(allocate_scratch(stream, bytes)) {
  try {
    clear_ticket(stream, address_);
  } catch (...) {
    runtime_.deallocate(address_);
    throw;
  }
}

ScratchBuffer::~ScratchBuffer() {
  ScratchTable& table = scratch_table();
  {
    const std::lock_guard lock(table.mutex);
    const auto found = table.newest.find(key_);
    if (found != table.newest.end() && found->second == this) table.newest.erase(found);
  }
  runtime_.deallocate(address_);
}

}  // namespace

Scratch scratch(StreamState& stream, std::size_t bytes) {
  CaptureSession* const session = stream.session();
  const ScratchKey key{session != nullptr ? session->id() : 0, stream.id};
  ScratchTable& table = scratch_table();
  {
    const std::lock_guard lock(table.mutex);
    const auto found = table.newest.find(key);
    if (found != table.newest.end() && found->second->bytes() >= bytes) {
      return found->second->view();
    }
  }
  // Allocating and handing to the session happen without the lock: the destructor takes it too.
  const std::size_t rounded = std::bit_ceil(std::max(bytes, kSmallestScratch));
  const Ref<ScratchBuffer> fresh = make_ref<ScratchBuffer>(stream, key, rounded);
  if (session != nullptr) session->retain(fresh);
  const std::lock_guard lock(table.mutex);
  if (session == nullptr) table.owned[stream.native].push_back(fresh);
  table.newest[key] = fresh.get();
  return fresh->view();
}

cublasLtHandle_t cublaslt_handle(StreamState& stream) {
  DeviceHandles& handles = handles_of(stream.device);
  const std::lock_guard lock(handles.mutex);
  if (handles.blas == nullptr) {
    const RelaxedCaptureMode relaxed;
    stream.runtime.make_current();
    CAPSTAN_CUBLAS_CHECK(cublasLtCreate(&handles.blas));
  }
  return handles.blas;
}

void detail::release_scratch(void* native_stream) noexcept {
  ScratchTable& table = scratch_table();
  std::vector<Ref<ScratchBuffer>> released;
  {
    const std::lock_guard lock(table.mutex);
    const auto found = table.owned.find(native_stream);
    if (found == table.owned.end()) return;
    released = std::move(found->second);
    table.owned.erase(found);
  }
  const RelaxedCaptureMode relaxed;
  CAPSTAN_CUDA_REPORT(cudaStreamSynchronize(static_cast<cudaStream_t>(native_stream)));
}

}  // namespace capstan

#include "framework/runtime/cuda_dnn_handle.h"

#include <array>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/runtime/cuda_capture_mode.h"
#include "framework/runtime/cuda_dnn_check.h"
#include "framework/runtime/cuda_stream.h"
#include "framework/runtime/runtime.h"

namespace capstan {
namespace {

struct Entry {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  bool bound = false;  // to its present stream
};

// Handles are never destroyed: that would wait for the device, and what a graph recorded might use
// memory of theirs.
struct Handles {
  std::mutex mutex;
  std::unordered_map<void*, std::unique_ptr<Entry>> by_stream;
  std::vector<std::unique_ptr<Entry>> idle;
};

Handles& handles_of(Device device) {
  static auto* const handles = new std::array<Handles, kMaxDevices>;
  return (*handles)[static_cast<std::size_t>(device.index)];
}

Entry& entry_of(StreamState& stream) {
  Handles& handles = handles_of(stream.device);
  const std::lock_guard lock(handles.mutex);
  std::unique_ptr<Entry>& entry = handles.by_stream[stream.native];
  if (entry == nullptr && !handles.idle.empty()) {
    entry = std::move(handles.idle.back());
    handles.idle.pop_back();
  }
  if (entry == nullptr) entry = std::make_unique<Entry>();
  return *entry;
}

}  // namespace

DnnHandle::DnnHandle(StreamState& stream) {
  Entry& entry = entry_of(stream);
  lock_ = std::unique_lock(entry.mutex);
  if (!entry.bound) {
    const RelaxedCaptureMode relaxed;
    stream.runtime.make_current();
    if (entry.handle == nullptr) CAPSTAN_CUDNN_CHECK(cudnnCreate(&entry.handle));
    CAPSTAN_CUDNN_CHECK(cudnnSetStream(entry.handle, native_stream(stream)));
    entry.bound = true;
  }
  handle_ = entry.handle;
}

void detail::release_dnn_handle(Device device, void* native_stream) noexcept {
  Handles& handles = handles_of(device);
  const std::lock_guard lock(handles.mutex);
  const auto found = handles.by_stream.find(native_stream);
  if (found == handles.by_stream.end()) return;
  found->second->bound = false;
  handles.idle.push_back(std::move(found->second));
  handles.by_stream.erase(found);
}

}  // namespace capstan

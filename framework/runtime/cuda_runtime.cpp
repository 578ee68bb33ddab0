// The CUDA runtime API behind DeviceRuntime. Streams are non-blocking, so that nothing is ordered
// by the legacy default stream, which a capture could not tolerate. Calls that CUDA counts as
// unsafe during a capture run in the relaxed mode: they are no part of any capture here, and must
// not invalidate one of this or another thread.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "framework/core/error.h"
#include "framework/runtime/capture_session.h"
#include "framework/runtime/cuda_capture_mode.h"
#include "framework/runtime/cuda_check.h"
#include "framework/runtime/cuda_dnn_handle.h"
#include "framework/runtime/cuda_graph.h"
#include "framework/runtime/cuda_pages.h"
#include "framework/runtime/cuda_stream.h"
#include "framework/runtime/library_handles.h"
#include "framework/runtime/runtime.h"

namespace capstan {
namespace {

// What this thread last made current; -1 before that.
constinit thread_local int current_device = -1;

cudaEvent_t as_event(void* event) noexcept { return static_cast<cudaEvent_t>(event); }

cudaStreamCaptureMode native_mode(CaptureErrorMode mode) noexcept {
  switch (mode) {
    case CaptureErrorMode::global: return cudaStreamCaptureModeGlobal;
    case CaptureErrorMode::thread_local_: return cudaStreamCaptureModeThreadLocal;
    case CaptureErrorMode::relaxed: return cudaStreamCaptureModeRelaxed;
  }
  return cudaStreamCaptureModeGlobal;
}

/// False if `code` says "not ready", which is an answer and not a failure.
bool is_done(cudaError_t code, const char* call) {
  if (code == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  detail::cuda_check(code, call);
  return true;
}

/// Null if memory ran out.
void* unless_exhausted(void* address, cudaError_t code, const char* call) {
  if (code == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return nullptr;
  }
  detail::cuda_check(code, call);
  return address;
}

class CudaRuntime final : public DeviceRuntime {
 public:
  explicit CudaRuntime(int index) : device_(Device::gpu(index)) {
    CudaRuntime::make_current();
    pages_.emplace(index);  // now that the driver is initialised
    cudaDeviceProp properties{};
    CAPSTAN_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
    name_ = properties.name;
  }

  Device device() const noexcept override { return device_; }
  std::string name() const override { return name_; }

  void make_current() override {
    if (current_device == device_.index) return;
    CAPSTAN_CUDA_CHECK(cudaSetDevice(device_.index));
    current_device = device_.index;
  }

  void* allocate(std::size_t bytes) override {
    const RelaxedCaptureMode relaxed;
    make_current();
    void* address = nullptr;
    const cudaError_t code = cudaMalloc(&address, bytes);
    return unless_exhausted(address, code, "cudaMalloc");
  }

  void deallocate(void* address) noexcept override {
    const RelaxedCaptureMode relaxed;
    CAPSTAN_CUDA_REPORT(cudaFree(address));
  }

  void* allocate_pinned(std::size_t bytes) override {
    const RelaxedCaptureMode relaxed;
    make_current();
    void* address = nullptr;
    const cudaError_t code =
        cudaHostAlloc(&address, bytes, cudaHostAllocMapped | cudaHostAllocPortable);
    return unless_exhausted(address, code, "cudaHostAlloc");
  }

  void deallocate_pinned(void* address) noexcept override {
    const RelaxedCaptureMode relaxed;
    CAPSTAN_CUDA_REPORT(cudaFreeHost(address));
  }

  DeviceMemory memory() override {
    const RelaxedCaptureMode relaxed;
    make_current();
    DeviceMemory memory;
    CAPSTAN_CUDA_CHECK(cudaMemGetInfo(&memory.free_bytes, &memory.total_bytes));
    return memory;
  }

  std::size_t page_granularity() noexcept override { return pages_->granularity(); }

  void* reserve_addresses(std::size_t bytes) override {
    const RelaxedCaptureMode relaxed;
    make_current();
    return pages_->reserve(bytes);
  }

  void release_addresses(void* address, std::size_t bytes) noexcept override {
    const RelaxedCaptureMode relaxed;
    pages_->release(address, bytes);
  }

  bool map_pages(void* address, std::size_t bytes, std::size_t page) override {
    const RelaxedCaptureMode relaxed;
    make_current();
    return pages_->map(address, bytes, page);
  }

  void unmap_pages(void* address, std::size_t bytes) noexcept override {
    const RelaxedCaptureMode relaxed;
    pages_->unmap(address, bytes);
  }

  void* create_stream(int priority) override {
    const RelaxedCaptureMode relaxed;
    make_current();
    cudaStream_t stream = nullptr;
    CAPSTAN_CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority));
    const std::lock_guard lock(streams_mutex_);
    streams_.push_back(stream);
    return stream;
  }

  void destroy_stream(void* handle) noexcept override {
    const auto stream = static_cast<cudaStream_t>(handle);
    detail::release_scratch(handle);
    detail::release_dnn_handle(device_, handle);
    const RelaxedCaptureMode relaxed;
    const std::lock_guard lock(streams_mutex_);
    std::erase(streams_, stream);
    CAPSTAN_CUDA_REPORT(cudaStreamDestroy(stream));
  }

  void synchronize_stream(StreamState& stream) override {
    const RelaxedCaptureMode relaxed;
    CAPSTAN_CUDA_CHECK(cudaStreamSynchronize(native_stream(stream)));
  }

  bool stream_done(StreamState& stream) override {
    const RelaxedCaptureMode relaxed;
    return is_done(cudaStreamQuery(native_stream(stream)), "cudaStreamQuery");
  }

  // Stream by stream: cudaDeviceSynchronize would end the captures of other threads in an error.
  // So would waiting for a stream that has begun to capture since it was asked, hence the lock.
  void synchronize_device() override {
    const RelaxedCaptureMode relaxed;
    make_current();
    const std::lock_guard lock(streams_mutex_);
    for (const cudaStream_t stream : streams_) {
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
      CAPSTAN_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
      if (status != cudaStreamCaptureStatusNone) continue;
      CAPSTAN_CUDA_CHECK(cudaStreamSynchronize(stream));
    }
  }

  void* create_event(bool timing) override {
    const RelaxedCaptureMode relaxed;
    make_current();
    cudaEvent_t event = nullptr;
    CAPSTAN_CUDA_CHECK(
        cudaEventCreateWithFlags(&event, timing ? cudaEventDefault : cudaEventDisableTiming));
    return event;
  }

  void destroy_event(void* event) noexcept override {
    const RelaxedCaptureMode relaxed;
    CAPSTAN_CUDA_REPORT(cudaEventDestroy(as_event(event)));
  }

  void record_event(void* event, StreamState& stream) override {
    CAPSTAN_CUDA_CHECK(cudaEventRecord(as_event(event), native_stream(stream)));
  }

  void wait_event(StreamState& stream, void* event) override {
    std::unique_lock lock(streams_mutex_, std::defer_lock);
    if (detail::active_captures() != 0) lock.lock();  // the stream may join a capture here
    CAPSTAN_CUDA_CHECK(cudaStreamWaitEvent(native_stream(stream), as_event(event), 0));
  }

  bool waits_for(Device other) const noexcept override { return other.is_gpu(); }

  bool event_done(void* event) override {
    const RelaxedCaptureMode relaxed;
    return is_done(cudaEventQuery(as_event(event)), "cudaEventQuery");
  }

  void synchronize_event(void* event) override {
    const RelaxedCaptureMode relaxed;
    CAPSTAN_CUDA_CHECK(cudaEventSynchronize(as_event(event)));
  }

  float elapsed_ms(void* start, void* end) override {
    const RelaxedCaptureMode relaxed;
    float milliseconds = 0.0f;
    CAPSTAN_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, as_event(start), as_event(end)));
    return milliseconds;
  }

  void copy(void* to, const void* from, std::size_t bytes, StreamState& stream) override {
    make_current();
    CAPSTAN_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native_stream(stream)));
  }

  // Unlike the copy above, it reaches mapped pages that the other GPU has no access to.
  void copy_from_peer(void* to, const void* from, Device other, std::size_t bytes,
                      StreamState& stream) override {
    make_current();
    CAPSTAN_CUDA_CHECK(
        cudaMemcpyPeerAsync(to, device_.index, from, other.index, bytes, native_stream(stream)));
  }

  void fill(void* address, std::uint8_t value, std::size_t bytes, StreamState& stream) override {
    make_current();
    CAPSTAN_CUDA_CHECK(cudaMemsetAsync(address, value, bytes, native_stream(stream)));
  }

  Ref<RefCounted> begin_capture(StreamState& stream, CaptureErrorMode mode) override {
    make_current();
    const std::lock_guard lock(streams_mutex_);
    CAPSTAN_CUDA_CHECK(cudaStreamBeginCapture(native_stream(stream), native_mode(mode)));
    return nullptr;
  }

  Ref<NativeGraph> end_capture(CaptureSession& session) override {
    return end_cuda_capture(session);
  }

 private:
  const Device device_;
  std::optional<CudaPages> pages_;
  std::string name_;
  std::mutex streams_mutex_;
  std::vector<cudaStream_t> streams_;
};

std::string version_text(int version) {
  return detail::concat(version / 1000, '.', version % 1000 / 10);
}

std::string why_no_device(cudaError_t code) {
  if (code == cudaErrorNoDevice) return "this machine has no NVIDIA GPU, or none is visible";
  if (code == cudaErrorInsufficientDriver) {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
      return "no NVIDIA driver is installed";
    }
    return detail::concat("the NVIDIA driver is too old: it knows CUDA ", version_text(driver),
                          ", this build needs ", version_text(CUDART_VERSION));
  }
  return detail::concat("cudaGetDeviceCount failed: ", cudaGetErrorName(code), " (",
                        cudaGetErrorString(code), ")");
}

}  // namespace

detail::CudaProbe detail::probe_cuda() noexcept {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  CudaProbe probe;
  if (code != cudaSuccess) {
    (void)cudaGetLastError();
    probe.reason = why_no_device(code);
  } else if (count == 0) {
    probe.reason = why_no_device(cudaErrorNoDevice);
  } else {
    probe.count = std::min(count, kMaxDevices);
  }
  return probe;
}

std::unique_ptr<DeviceRuntime> detail::make_cuda_runtime(int index) {
  return std::make_unique<CudaRuntime>(index);
}

}  // namespace capstan

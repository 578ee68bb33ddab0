#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "framework/core/device.h"
#include "framework/core/ref.h"

namespace capstan {

class CaptureSession;
class StreamState;

/// Which threads a capture forbids to wait for devices of its type, or to ask them, while it runs:
/// the calls of `forbidden_table` with `waits`. On a stream that captures they are errors in every
/// mode. The meanings are CUDA's, and CUDA gets the same mode for calls made past this library.
/// Memory, streams, events and graphs may be made and released in every mode, by any thread: the
/// library does so in a way that no capture sees.
enum class CaptureErrorMode : std::uint8_t {
  global,         ///< all threads
  thread_local_,  ///< the thread that began the capture
  relaxed         ///< none
};

/// An executable graph. Launches of one exec run one after the other.
class NativeExec {
 public:
  virtual ~NativeExec() = default;
  /// Enqueues one replay on `stream`; inline on the CPU. Allocates nothing. While `stream`
  /// captures, the replay becomes a part of that capture, which does not need the exec afterwards.
  virtual void launch(StreamState& stream) = 0;
  /// CUDA's handle (a cudaGraphExec_t); null where the device has none.
  [[nodiscard]] virtual void* native_handle() const noexcept { return nullptr; }
};

/// What a finished capture recorded, not yet executable.
class NativeGraph : public RefCounted {
 public:
  [[nodiscard]] virtual std::unique_ptr<NativeExec> instantiate() = 0;
  [[nodiscard]] virtual std::int64_t node_count() const = 0;
  /// CUDA's handle (a cudaGraph_t); null where the device has none.
  [[nodiscard]] virtual void* native_handle() const noexcept { return nullptr; }
};

struct DeviceMemory {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
};

/// One device seen from below: raw memory, streams, events, copies, native capture. Three
/// implementations, `cpu`, `emulated` and `cuda`; what each promises beyond this is in its own
/// header. Handles
/// are opaque here; `Stream` and `Event` own them. Every function may be called from any thread.
/// Failures throw CudaError (or OutOfMemory where said); functions marked noexcept report to
/// stderr.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  [[nodiscard]] virtual Device device() const noexcept = 0;
  [[nodiscard]] virtual std::string name() const = 0;
  /// Makes this device current for the calling thread, where the API below has such a notion.
  virtual void make_current() {}

  // Raw memory, for the caching allocator alone.
  /// At least 512-byte aligned (64 on the CPU). Null when the device has no memory left. Permitted
  /// during a capture: the call does not become part of it and does not harm it.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* address) noexcept = 0;
  /// Page-locked host memory that the device copies from and to asynchronously.
  [[nodiscard]] virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void deallocate_pinned(void* address) noexcept = 0;
  [[nodiscard]] virtual DeviceMemory memory() = 0;
  /// True if `poison` does something: fills memory that the caching allocator got back, in the
  /// order of the stream with this id, so that who still reads it sees.
  [[nodiscard]] virtual bool poisons() const noexcept { return false; }
  virtual void poison(void*, std::size_t, std::uint64_t) noexcept {}

  // Addresses, and memory put behind them page by page: segments that grow, for the caching
  // allocator alone. Permitted during a capture like `allocate`. Ranges are whole pages, which the
  // caller counts from the start of the reserved one.
  /// The size of a page is a multiple of these bytes; 0 (the default) if this device has no such
  /// thing. The rest is not called then.
  [[nodiscard]] virtual std::size_t page_granularity() noexcept { return 0; }
  /// A range without memory, aligned to the granularity. Null when no addresses are left.
  [[nodiscard]] virtual void* reserve_addresses(std::size_t /*bytes*/) { return nullptr; }
  /// The whole range as reserved, with nothing mapped in it.
  virtual void release_addresses(void* /*address*/, std::size_t /*bytes*/) noexcept {}
  /// Puts memory behind a part of a reserved range that has none, in pages of `page` bytes. On a
  /// GPU each of them costs time, whatever its size. False when the device has no memory left;
  /// nothing is mapped then.
  [[nodiscard]] virtual bool map_pages(void* /*address*/, std::size_t /*bytes*/,
                                       std::size_t /*page*/) {
    return false;
  }
  /// Gives back the memory of a part that has some. The device must be done with it.
  virtual void unmap_pages(void* /*address*/, std::size_t /*bytes*/) noexcept {}

  [[nodiscard]] virtual void* create_stream(int priority) = 0;
  virtual void destroy_stream(void* stream) noexcept = 0;
  virtual void synchronize_stream(StreamState& stream) = 0;
  [[nodiscard]] virtual bool stream_done(StreamState& stream) = 0;
  virtual void synchronize_device() = 0;

  [[nodiscard]] virtual void* create_event(bool timing) = 0;
  virtual void destroy_event(void* event) noexcept = 0;
  virtual void record_event(void* event, StreamState& stream) = 0;
  /// `event` is of a device for which `waits_for` holds.
  virtual void wait_event(StreamState& stream, void* event) = 0;
  /// True if streams of this device can wait for events of `other` without the host.
  [[nodiscard]] virtual bool waits_for(Device other) const noexcept { return other == device(); }
  [[nodiscard]] virtual bool event_done(void* event) = 0;
  virtual void synchronize_event(void* event) = 0;
  [[nodiscard]] virtual float elapsed_ms(void* start, void* end) = 0;

  /// Copies between any two of {this device, host}; in stream order, recorded while capturing.
  virtual void copy(void* to, const void* from, std::size_t bytes, StreamState& stream) = 0;
  /// As `copy`, from the memory of `other`, a device of the same type, to this one's.
  virtual void copy_from_peer(void* to, const void* from, Device /*other*/, std::size_t bytes,
                              StreamState& stream) {
    copy(to, from, bytes, stream);
  }
  /// Sets every byte; in stream order, recorded while capturing.
  virtual void fill(void* address, std::uint8_t value, std::size_t bytes, StreamState& stream) = 0;

  /// Begins native capture on `stream`. The result, which may be null, is kept by the session as
  /// the recording under construction.
  [[nodiscard]] virtual Ref<RefCounted> begin_capture(StreamState& stream,
                                                      CaptureErrorMode mode) = 0;
  /// Ends native capture in every case, also when it throws.
  [[nodiscard]] virtual Ref<NativeGraph> end_capture(CaptureSession& session) = 0;
};

/// The runtime of `device`, made on first use. @throws DeviceError naming the reason if there is no
/// such device.
[[nodiscard]] DeviceRuntime& runtime(Device device);

/// True if this build has CUDA and this machine a GPU that it can use.
[[nodiscard]] bool gpu_available() noexcept;
[[nodiscard]] int gpu_count() noexcept;
/// Why `gpu_available()` is false, in one line; empty if it is true.
[[nodiscard]] std::string gpu_unavailable_reason();

namespace detail {
/// Defined by cuda_runtime.cpp, or by no_cuda.cpp in a build without CUDA.
struct CudaProbe {
  int count = 0;
  std::string reason;
};
[[nodiscard]] CudaProbe probe_cuda() noexcept;
[[nodiscard]] std::unique_ptr<DeviceRuntime> make_cuda_runtime(int index);
}  // namespace detail

}  // namespace capstan

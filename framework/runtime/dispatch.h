#pragma once

#include <cstddef>
#include <type_traits>

#include "framework/core/counters.h"
#include "framework/core/device.h"
#include "framework/runtime/runtime.h"
#include "framework/runtime/stream.h"

namespace capstan {

namespace cpu {
using KernelThunk = void (*)(void (*kernel)(), const void* args);
/// Hands a kernel call to a stream that defers: to its queue, or to the capture that it is part of.
/// `args` is copied.
void defer_kernel(StreamState& stream, KernelThunk thunk, void (*kernel)(), const void* args,
                  std::size_t bytes);

/// Runs `kernel` in the order of `stream`, which is of a CPU device: at once where nothing defers.
template <typename Args>
void submit(StreamState& stream, void (*kernel)(const Args&), const Args& args) {
  static_assert(std::is_trivially_copyable_v<Args>,
                "kernel arguments are raw addresses and scalars");
  static_assert(alignof(Args) <= 16);
  if (!stream.defers()) {
    kernel(args);
    return;
  }
  const KernelThunk thunk = [](void (*function)(), const void* bytes) {
    reinterpret_cast<void (*)(const Args&)>(function)(*static_cast<const Args*>(bytes));
  };
  defer_kernel(stream, thunk, reinterpret_cast<void (*)()>(kernel), &args, sizeof(Args));
}
}  // namespace cpu

/// The one seam through which kernels run. Hands `args` to the kernel of `device` on the calling
/// thread's current stream: at once, or, while that stream captures, into the recording. `args`
/// holds raw addresses and scalars and no tensors, so neither does a replay.
template <typename Args>
void dispatch(Device device, void (*on_cpu)(const Args&), void (*on_gpu)(const Args&, StreamState&),
              const Args& args) {
  detail::count(counters().dispatches);
  StreamState& stream = detail::current_stream_state(device);
  if (device.is_gpu()) {
    stream.runtime.make_current();
    on_gpu(args, stream);
  } else {
    cpu::submit(stream, on_cpu, args);
  }
}

}  // namespace capstan

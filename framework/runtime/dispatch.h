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
/// Appends a kernel call to the capture that `stream` is part of; `args` is copied.
void record_kernel(StreamState& stream, KernelThunk thunk, void (*kernel)(), const void* args,
                   std::size_t bytes);
}  // namespace cpu

/// The one seam through which kernels run. Hands `args` to the kernel of `device` on the calling
/// thread's current stream: at once, or, while that stream captures, into the recording. `args`
/// holds raw addresses and scalars and no tensors, so neither does a replay.
template <typename Args>
void dispatch(Device device, void (*on_cpu)(const Args&), void (*on_gpu)(const Args&, StreamState&),
              const Args& args) {
  static_assert(std::is_trivially_copyable_v<Args>,
                "kernel arguments are raw addresses and scalars");
  static_assert(alignof(Args) <= 16);
  detail::count(counters().dispatches);
  StreamState& stream = detail::current_stream_state(device);
  if (device.is_gpu()) {
    stream.runtime.make_current();
    on_gpu(args, stream);
  } else if (stream.session() == nullptr) {
    on_cpu(args);
  } else {
    const cpu::KernelThunk thunk = [](void (*kernel)(), const void* bytes) {
      reinterpret_cast<void (*)(const Args&)>(kernel)(*static_cast<const Args*>(bytes));
    };
    cpu::record_kernel(stream, thunk, reinterpret_cast<void (*)()>(on_cpu), &args, sizeof(Args));
  }
}

}  // namespace capstan

#include "framework/core/error.h"
#include "framework/random/philox_state.h"

namespace capstan::gpu {

void set_philox_state(std::uint64_t*, std::uint64_t, std::uint64_t, StreamState&) {
  throw DeviceError("random numbers of a replay: this build has no CUDA; use Device::cpu()");
}

}  // namespace capstan::gpu

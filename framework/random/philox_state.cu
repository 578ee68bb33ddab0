// A kernel of one thread instead of a copy: its arguments are taken at the call, where an
// asynchronous copy would read host memory at a time unknown to the caller.

#include "framework/random/philox_state.h"

#include "framework/runtime/cuda_check.h"
#include "framework/runtime/cuda_stream.h"

namespace capstan::gpu {
namespace {

// Launch: <<<1, 1>>>.
__global__ void set_philox_state_kernel(std::uint64_t* state, std::uint64_t seed,
                                        std::uint64_t offset) {
  state[0] = seed;
  state[1] = offset;
}

}  // namespace

void set_philox_state(std::uint64_t* state, std::uint64_t seed, std::uint64_t offset,
                      StreamState& stream) {
  set_philox_state_kernel<<<1, 1, 0, native_stream(stream)>>>(state, seed, offset);
  CAPSTAN_CHECK_LAUNCH(set_philox_state_kernel);
}

}  // namespace capstan::gpu

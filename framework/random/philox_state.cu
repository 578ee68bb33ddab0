// Kernels of one thread instead of copies: their arguments are taken at the call, where an
// asynchronous copy would read host memory at a time unknown to the caller.

#include "framework/random/philox_state.h"

#include "framework/runtime/cuda_check.h"
#include "framework/runtime/cuda_stream.h"

namespace capstan::gpu {
namespace {

// Launch: <<<1, 1>>>.
__global__ void set_philox_state_kernel(SetPhiloxArgs args) {
  args.words[0] = args.seed;
  args.words[1] = args.offset;
}

// Launch: <<<1, 1>>>.
__global__ void shift_philox_state_kernel(ShiftPhiloxArgs args) {
  args.words[0] = args.from[0];
  args.words[1] = args.from[1] + args.offset;
}

}  // namespace

void set_philox_state(const SetPhiloxArgs& args, StreamState& stream) {
  set_philox_state_kernel<<<1, 1, 0, native_stream(stream)>>>(args);
  CAPSTAN_CHECK_LAUNCH(set_philox_state_kernel);
}

void shift_philox_state(const ShiftPhiloxArgs& args, StreamState& stream) {
  shift_philox_state_kernel<<<1, 1, 0, native_stream(stream)>>>(args);
  CAPSTAN_CHECK_LAUNCH(shift_philox_state_kernel);
}

}  // namespace capstan::gpu

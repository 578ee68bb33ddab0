#include "framework/core/error.h"
#include "framework/random/philox_state.h"

namespace capstan::gpu {
namespace {

[[noreturn]] void refuse() {
  throw DeviceError("random numbers of a replay: this build has no CUDA; use Device::cpu()");
}

}  // namespace

void set_philox_state(const SetPhiloxArgs&, StreamState&) { refuse(); }

void shift_philox_state(const ShiftPhiloxArgs&, StreamState&) { refuse(); }

}  // namespace capstan::gpu

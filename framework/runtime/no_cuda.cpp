#include "framework/core/error.h"
#include "framework/runtime/runtime.h"

namespace capstan::detail {

CudaProbe probe_cuda() noexcept {
  return {0, "this build has no CUDA; configure with -Dcuda=enabled"};
}

std::unique_ptr<DeviceRuntime> make_cuda_runtime(int index) {
  throw DeviceError(concat("device: gpu:", index,
                           " cannot be used, this build has no CUDA; configure with "
                           "-Dcuda=enabled"));
}

}  // namespace capstan::detail

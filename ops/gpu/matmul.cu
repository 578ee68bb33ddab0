// Matrix products through cuBLASLt. It thinks in columns, so a row-major C = A B is computed as
// C^T = B^T A^T: the same memory with operands swapped and no copies. What the library needs to
// know about a shape (layouts, algorithm) is found once and remembered; reductions that are not
// deterministic are excluded. The bias is a kernel of its own: at small sizes the plain products
// with a bias kernel are faster than those with a fused epilogue.

#include <cublasLt.h>

#include "framework/core/dtype_visit.h"
#include "framework/runtime/cuda_blas_check.h"
#include "framework/runtime/cuda_capture_mode.h"
#include "framework/runtime/library_handles.h"
#include "ops/gpu/launch.cuh"
#include "ops/gpu/matmul_plan.cuh"

namespace capstan::gpu {
namespace {

constexpr std::int64_t kMaxBatch = 65535;  // in one call

// Launch: <<<blocks_for(batch * m * n, kBlockSize), kBlockSize>>>.
template <typename T>
__global__ void __launch_bounds__(kBlockSize) add_bias_kernel(MatmulArgs args) {
  const T* bias = static_cast<const T*>(args.bias);
  const std::int64_t numel = args.batch * args.m * args.n;
  for (std::int64_t i = thread_index(); i < numel; i += thread_count()) {
    const auto [line, column] = divide(i, args.n);
    const auto [batch, row] = divide(line, args.m);
    T* c = static_cast<T*>(args.c) + batch * args.c_batch_stride + row * args.ldc;
    c[column] = static_cast<T>(c[column] + bias[column]);
  }
}

template <typename T>
void multiply(const MatmulArgs& args, StreamState& stream) {
  // The first product on a stream may load code and set the library up, also during a capture.
  const RelaxedCaptureMode relaxed;
  const cublasLtHandle_t handle = cublaslt_handle(stream);
  const std::shared_ptr<const MatmulPlan> plan = matmul_plan(args, handle, stream.device);
  const Scratch workspace =
      plan->workspace_bytes() > 0 ? scratch(stream, plan->workspace_bytes()) : Scratch{};
  const Compute<T> alpha{1};
  const auto beta = static_cast<Compute<T>>(args.beta);
  CAPSTAN_CUBLAS_CHECK(cublasLtMatmul(handle, plan->product(), &alpha, args.b, plan->b(), args.a,
                                      plan->a(), &beta, args.c, plan->c(), args.c, plan->c(),
                                      plan->algorithm(), workspace.data, plan->workspace_bytes(),
                                      native_stream(stream)));
}

template <typename T>
void run(const MatmulArgs& args, StreamState& stream) {
  for (std::int64_t first = 0; first < args.batch; first += kMaxBatch) {
    MatmulArgs part = args;
    part.batch = std::min(kMaxBatch, args.batch - first);
    part.a = static_cast<const T*>(args.a) + first * args.a_batch_stride;
    part.b = static_cast<const T*>(args.b) + first * args.b_batch_stride;
    part.c = static_cast<T*>(args.c) + first * args.c_batch_stride;
    multiply<T>(part, stream);
  }
  if (args.bias == nullptr) return;
  add_bias_kernel<T><<<blocks_for(args.batch * args.m * args.n, kBlockSize), kBlockSize, 0,
                       native_stream(stream)>>>(args);
  CAPSTAN_CHECK_LAUNCH(add_bias_kernel);
}

}  // namespace

void matmul(const MatmulArgs& args, StreamState& stream) {
  visit_floating(args.dtype, "matmul", [&]<typename T>() { run<T>(args, stream); });
}

}  // namespace capstan::gpu

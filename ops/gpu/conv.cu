// Convolutions through cuDNN, with descriptors and algorithm from a plan that is made once for each
// shape. Its workspace is the stream's scratch, so the library allocates nothing, also in captures.

#include "ops/conv_kernels.h"

#include "framework/core/dtype_visit.h"
#include "framework/runtime/cuda_capture_mode.h"
#include "framework/runtime/cuda_dnn_check.h"
#include "framework/runtime/cuda_dnn_handle.h"
#include "framework/runtime/library_handles.h"
#include "ops/gpu/conv_plan.cuh"
#include "ops/gpu/launch.cuh"

namespace capstan::gpu {
namespace {

// Launch: <<<blocks_for(numel, kBlockSize), kBlockSize>>>. y is [outer, channels, inner].
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
    add_channel_bias_kernel(T* y, const T* bias, std::int64_t numel, std::int64_t channels,
                            std::int64_t inner) {
  for (std::int64_t i = thread_index(); i < numel; i += thread_count()) {
    y[i] = static_cast<T>(y[i] + bias[divide(divide(i, inner).quotient, channels).remainder]);
  }
}

void add_bias(const ConvArgs& args, StreamState& stream) {
  const ConvSizes& s = args.sizes;
  const std::int64_t channels = s.groups * s.out;
  const std::int64_t inner = s.height.output * s.width.output;
  const std::int64_t numel = s.batch * channels * inner;
  visit_floating(args.dtype, "conv2d", [&]<typename T>() {
    add_channel_bias_kernel<T>
        <<<blocks_for(numel, kBlockSize), kBlockSize, 0, native_stream(stream)>>>(
            static_cast<T*>(args.y), static_cast<const T*>(args.bias), numel, channels, inner);
    CAPSTAN_CHECK_LAUNCH(add_channel_bias_kernel);
  });
}

/// Calls `body(handle, plan, workspace, alpha, beta)`, the last two 1 and 0 as the library reads
/// them.
template <typename Body>
void with_plan(const ConvArgs& args, ConvPass pass, StreamState& stream, const Body& body) {
  // The first convolution on a stream may load code and set the library up, also in a capture.
  const RelaxedCaptureMode relaxed;
  const DnnHandle handle(stream);
  const std::shared_ptr<const ConvPlan> plan = conv_plan(args, pass, handle.get(), stream.device);
  void* const workspace =
      plan->workspace_bytes() > 0 ? scratch(stream, plan->workspace_bytes()).data : nullptr;
  const float one = 1.0f;
  const float zero = 0.0f;
  const double double_one = 1.0;
  const double double_zero = 0.0;
  const bool is_double = args.dtype == DType::float64;
  body(handle.get(), *plan, workspace,
       is_double ? static_cast<const void*>(&double_one) : static_cast<const void*>(&one),
       is_double ? static_cast<const void*>(&double_zero) : static_cast<const void*>(&zero));
}

}  // namespace

void conv(const ConvArgs& args, StreamState& stream) {
  with_plan(args, ConvPass::forward, stream,
            [&](cudnnHandle_t handle, const ConvPlan& plan, void* workspace, const void* one,
                const void* zero) {
              CAPSTAN_CUDNN_CHECK(cudnnConvolutionForward(
                  handle, one, plan.x(), args.x, plan.weight(), args.weight, plan.convolution(),
                  static_cast<cudnnConvolutionFwdAlgo_t>(plan.algorithm()), workspace,
                  plan.workspace_bytes(), zero, plan.y(), args.y));
            });
  if (args.bias != nullptr) add_bias(args, stream);
}

void conv_input_gradient(const ConvArgs& args, StreamState& stream) {
  with_plan(args, ConvPass::input_gradient, stream,
            [&](cudnnHandle_t handle, const ConvPlan& plan, void* workspace, const void* one,
                const void* zero) {
              CAPSTAN_CUDNN_CHECK(cudnnConvolutionBackwardData(
                  handle, one, plan.weight(), args.weight, plan.y(), args.y, plan.convolution(),
                  static_cast<cudnnConvolutionBwdDataAlgo_t>(plan.algorithm()), workspace,
                  plan.workspace_bytes(), zero, plan.x(), args.x));
            });
}

void conv_weight_gradient(const ConvArgs& args, StreamState& stream) {
  with_plan(args, ConvPass::weight_gradient, stream,
            [&](cudnnHandle_t handle, const ConvPlan& plan, void* workspace, const void* one,
                const void* zero) {
              CAPSTAN_CUDNN_CHECK(cudnnConvolutionBackwardFilter(
                  handle, one, plan.x(), args.x, plan.y(), args.y, plan.convolution(),
                  static_cast<cudnnConvolutionBwdFilterAlgo_t>(plan.algorithm()), workspace,
                  plan.workspace_bytes(), zero, plan.weight(), args.weight));
            });
}

}  // namespace capstan::gpu

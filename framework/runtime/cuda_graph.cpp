#include "framework/runtime/cuda_graph.h"

#include <memory>
#include <type_traits>

#include "framework/core/error.h"
#include "framework/runtime/capture_session.h"
#include "framework/runtime/cuda_capture_mode.h"
#include "framework/runtime/cuda_check.h"
#include "framework/runtime/cuda_stream.h"

namespace capstan {
namespace {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const noexcept {
    const RelaxedCaptureMode relaxed;
    CAPSTAN_CUDA_REPORT(cudaGraphDestroy(graph));
  }
};
using GraphHandle = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

struct DestroyExec {
  void operator()(cudaGraphExec_t exec) const noexcept {
    const RelaxedCaptureMode relaxed;
    CAPSTAN_CUDA_REPORT(cudaGraphExecDestroy(exec));
  }
};
using ExecHandle = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyExec>;

// CUDA does not launch into a stream that captures: the template becomes a node there instead.
void add_child(cudaGraph_t child, cudaStream_t stream) {
  cudaStreamCaptureStatus status{};
  cudaGraph_t capturing = nullptr;
  const cudaGraphNode_t* before = nullptr;
  std::size_t count = 0;
  CAPSTAN_CUDA_CHECK(
      cudaStreamGetCaptureInfo(stream, &status, nullptr, &capturing, &before, nullptr, &count));
  cudaGraphNode_t node = nullptr;
  CAPSTAN_CUDA_CHECK(cudaGraphAddChildGraphNode(&node, capturing, before, count, child));
  CAPSTAN_CUDA_CHECK(cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1,
                                                         cudaStreamSetCaptureDependencies));
}

class CudaExec final : public NativeExec {
 public:
  CudaExec(ExecHandle exec, std::shared_ptr<std::remove_pointer_t<cudaGraph_t>> source) noexcept
      : source_(std::move(source)), exec_(std::move(exec)) {}

  void launch(StreamState& stream) override {
    stream.runtime.make_current();
    if (stream.session() != nullptr) return add_child(source_.get(), native_stream(stream));
    CAPSTAN_CUDA_CHECK(cudaGraphLaunch(exec_.get(), native_stream(stream)));
  }
  void* native_handle() const noexcept override { return exec_.get(); }

 private:
  const std::shared_ptr<std::remove_pointer_t<cudaGraph_t>> source_;  // for captures to contain
  const ExecHandle exec_;
};

class CudaGraph final : public NativeGraph {
 public:
  CudaGraph(DeviceRuntime& runtime, GraphHandle graph) noexcept
      : runtime_(runtime), graph_(std::move(graph)) {}

  std::unique_ptr<NativeExec> instantiate() override {
    const RelaxedCaptureMode relaxed;
    runtime_.make_current();
    cudaGraphExec_t exec = nullptr;
    CAPSTAN_CUDA_CHECK(cudaGraphInstantiate(&exec, graph_.get(), 0));
    return std::make_unique<CudaExec>(ExecHandle(exec), graph_);
  }

  std::int64_t node_count() const override {
    std::size_t count = 0;
    CAPSTAN_CUDA_CHECK(cudaGraphGetNodes(graph_.get(), nullptr, &count));
    return static_cast<std::int64_t>(count);
  }
  void* native_handle() const noexcept override { return graph_.get(); }

 private:
  DeviceRuntime& runtime_;
  const std::shared_ptr<std::remove_pointer_t<cudaGraph_t>> graph_;
};

// A capture that CUDA has invalidated refuses all of this, which its end then tells.
void join_stray(StreamState& origin, StreamState& stray) noexcept {
  try {
    stray.runtime.make_current();
  } catch (const CudaError&) {
    return;
  }
  const RelaxedCaptureMode relaxed;
  cudaEvent_t event = nullptr;
  if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess) {
    if (cudaEventRecord(event, native_stream(stray)) == cudaSuccess) {
      (void)cudaStreamWaitEvent(native_stream(origin), event, 0);
    }
    (void)cudaEventDestroy(event);
  }
  (void)cudaGetLastError();
}

}  // namespace

Ref<NativeGraph> end_cuda_capture(const CaptureSession& session) {
  StreamState& origin = session.origin().state();
  session.visit_strays([&](StreamState& stray) { join_stray(origin, stray); });
  cudaGraph_t raw = nullptr;
  const cudaError_t code = cudaStreamEndCapture(native_stream(origin), &raw);
  GraphHandle graph(raw);
  if (code != cudaSuccess) {
    (void)cudaGetLastError();
    throw CaptureError(detail::concat("capture_end: CUDA gave the capture up, got ",
                                      cudaGetErrorName(code), " (", cudaGetErrorString(code),
                                      "); look for the first CUDA call that failed while it ran"));
  }
  return make_ref<CudaGraph>(origin.runtime, std::move(graph));
}

}  // namespace capstan

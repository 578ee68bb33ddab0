// As in matmul_plan.cu: asking the library costs far more than a look into the cache. Its
// heuristics choose; nothing is run to compare, so that choices repeat and captures stay
// undisturbed.

#include "ops/gpu/conv_plan.cuh"

#include <array>
#include <limits>
#include <map>
#include <mutex>

#include "framework/runtime/cuda_dnn_check.h"

namespace capstan::gpu {
namespace {

constexpr std::size_t kMaxWorkspace = std::size_t{256} << 20;
constexpr std::size_t kMaxPlans = 4096;
constexpr int kMaxCandidates = 16;

cudnnDataType_t data_type_of(DType dtype) {
  switch (dtype) {
    case DType::float64: return CUDNN_DATA_DOUBLE;
    case DType::float16: return CUDNN_DATA_HALF;
    case DType::bfloat16: return CUDNN_DATA_BFLOAT16;
    default: return CUDNN_DATA_FLOAT;
  }
}

cudnnMathType_t math_of(const ConvArgs& args) {
  if (is_half(args.dtype)) return CUDNN_TENSOR_OP_MATH;
  return args.dtype == DType::float32 && !args.tf32 ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH;
}

int narrow(std::int64_t size) {
  CAPSTAN_CHECK(size <= std::numeric_limits<int>::max(), ShapeError,
                "conv2d: cuDNN takes sizes up to 2147483647, got ", size);
  return static_cast<int>(size);
}

DnnDescriptor<cudnnTensorDescriptor_t> make_tensor(const ConvArgs& args, std::int64_t channels,
                                                   std::int64_t height, std::int64_t width) {
  cudnnTensorDescriptor_t raw = nullptr;
  CAPSTAN_CUDNN_CHECK(cudnnCreateTensorDescriptor(&raw));
  DnnDescriptor<cudnnTensorDescriptor_t> tensor(raw);
  CAPSTAN_CUDNN_CHECK(cudnnSetTensor4dDescriptor(raw, CUDNN_TENSOR_NCHW, data_type_of(args.dtype),
                                                 narrow(args.sizes.batch), narrow(channels),
                                                 narrow(height), narrow(width)));
  return tensor;
}

DnnDescriptor<cudnnFilterDescriptor_t> make_weight(const ConvArgs& args) {
  const ConvSizes& s = args.sizes;
  cudnnFilterDescriptor_t raw = nullptr;
  CAPSTAN_CUDNN_CHECK(cudnnCreateFilterDescriptor(&raw));
  DnnDescriptor<cudnnFilterDescriptor_t> weight(raw);
  CAPSTAN_CUDNN_CHECK(cudnnSetFilter4dDescriptor(raw, data_type_of(args.dtype), CUDNN_TENSOR_NCHW,
                                                 narrow(s.groups * s.out), narrow(s.in),
                                                 narrow(s.height.kernel), narrow(s.width.kernel)));
  return weight;
}

DnnDescriptor<cudnnConvolutionDescriptor_t> make_convolution(const ConvArgs& args) {
  const ConvAxis& h = args.sizes.height;
  const ConvAxis& w = args.sizes.width;
  cudnnConvolutionDescriptor_t raw = nullptr;
  CAPSTAN_CUDNN_CHECK(cudnnCreateConvolutionDescriptor(&raw));
  DnnDescriptor<cudnnConvolutionDescriptor_t> convolution(raw);
  CAPSTAN_CUDNN_CHECK(cudnnSetConvolution2dDescriptor(
      raw, narrow(h.padding), narrow(w.padding), narrow(h.stride), narrow(w.stride),
      narrow(h.dilation), narrow(w.dilation), CUDNN_CROSS_CORRELATION,
      args.dtype == DType::float64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT));
  CAPSTAN_CUDNN_CHECK(cudnnSetConvolutionGroupCount(raw, narrow(args.sizes.groups)));
  CAPSTAN_CUDNN_CHECK(cudnnSetConvolutionMathType(raw, math_of(args)));
  return convolution;
}

/// The library's calls of one pass under common names.
struct Forward {
  using Candidate = cudnnConvolutionFwdAlgoPerf_t;
  static cudnnStatus_t candidates(const ConvPlan& p, cudnnHandle_t handle, int* found,
                                  Candidate* list) {
    return cudnnGetConvolutionForwardAlgorithm_v7(handle, p.x(), p.weight(), p.convolution(), p.y(),
                                                  kMaxCandidates, found, list);
  }
  static cudnnStatus_t workspace(const ConvPlan& p, cudnnHandle_t handle, const Candidate& choice,
                                 std::size_t* bytes) {
    return cudnnGetConvolutionForwardWorkspaceSize(handle, p.x(), p.weight(), p.convolution(),
                                                   p.y(), choice.algo, bytes);
  }
};

struct InputGradient {
  using Candidate = cudnnConvolutionBwdDataAlgoPerf_t;
  static cudnnStatus_t candidates(const ConvPlan& p, cudnnHandle_t handle, int* found,
                                  Candidate* list) {
    return cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, p.weight(), p.y(), p.convolution(),
                                                       p.x(), kMaxCandidates, found, list);
  }
  static cudnnStatus_t workspace(const ConvPlan& p, cudnnHandle_t handle, const Candidate& choice,
                                 std::size_t* bytes) {
    return cudnnGetConvolutionBackwardDataWorkspaceSize(handle, p.weight(), p.y(), p.convolution(),
                                                        p.x(), choice.algo, bytes);
  }
};

struct WeightGradient {
  using Candidate = cudnnConvolutionBwdFilterAlgoPerf_t;
  static cudnnStatus_t candidates(const ConvPlan& p, cudnnHandle_t handle, int* found,
                                  Candidate* list) {
    return cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, p.x(), p.y(), p.convolution(),
                                                         p.weight(), kMaxCandidates, found, list);
  }
  static cudnnStatus_t workspace(const ConvPlan& p, cudnnHandle_t handle, const Candidate& choice,
                                 std::size_t* bytes) {
    return cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, p.x(), p.y(), p.convolution(),
                                                          p.weight(), choice.algo, bytes);
  }
};

struct Choice {
  int algorithm;
  std::size_t workspace_bytes;
};

/// The fastest, as the library expects, that does what is wanted.
template <typename Pass>
Choice choose(const ConvPlan& plan, const ConvArgs& args, cudnnHandle_t handle) {
  std::array<typename Pass::Candidate, kMaxCandidates> list{};
  int found = 0;
  CAPSTAN_CUDNN_CHECK(Pass::candidates(plan, handle, &found, list.data()));
  for (int i = 0; i < found; ++i) {
    const typename Pass::Candidate& candidate = list[static_cast<std::size_t>(i)];
    if (candidate.status != CUDNN_STATUS_SUCCESS) continue;
    if (args.deterministic && candidate.determinism != CUDNN_DETERMINISTIC) continue;
    // The library's candidates may bring tensor cores back that the descriptor rules out.
    const cudnnMathType_t math =
        math_of(args) == CUDNN_FMA_MATH ? CUDNN_FMA_MATH : candidate.mathType;
    CAPSTAN_CUDNN_CHECK(cudnnSetConvolutionMathType(plan.convolution(), math));
    std::size_t bytes = 0;
    if (Pass::workspace(plan, handle, candidate, &bytes) != CUDNN_STATUS_SUCCESS) continue;
    if (bytes > kMaxWorkspace) continue;
    return {static_cast<int>(candidate.algo), bytes};
  }
  const ConvSizes& s = args.sizes;
  throw Error(detail::concat("conv2d: cuDNN has no ", args.deterministic ? "deterministic " : "",
                             "algorithm within 256 MiB of workspace, got batch ", s.batch,
                             ", groups ", s.groups, ", channels ", s.in, " to ", s.out, ", image ",
                             s.height.input, " x ", s.width.input, ", kernel ", s.height.kernel,
                             " x ", s.width.kernel, ", ", args.dtype,
                             "; try set_conv_policy({.deterministic = false}) or a smaller batch"));
}

using PlanKey = std::array<std::int64_t, 18>;

PlanKey key_of(const ConvArgs& args, ConvPass pass, Device device) {
  const ConvSizes& s = args.sizes;
  PlanKey key{s.batch,
              s.groups,
              s.in,
              s.out,
              s.height.input,
              s.height.kernel,
              s.height.output,
              s.height.stride,
              s.height.padding,
              s.height.dilation,
              s.width.input,
              s.width.kernel,
              s.width.output,
              s.width.stride,
              s.width.padding,
              s.width.dilation,
              static_cast<std::int64_t>(args.dtype),
              0};
  key.back() = args.tf32 + 2 * args.deterministic + 4 * static_cast<int>(pass) + 16 * device.index;
  return key;
}

struct PlanCache {
  std::mutex mutex;
  std::map<PlanKey, std::shared_ptr<const ConvPlan>> plans;
};

PlanCache& plan_cache() {
  static auto* const cache = new PlanCache;  // the library may be gone when statics are destroyed
  return *cache;
}

}  // namespace

void DestroyDnnDescriptor::operator()(cudnnTensorDescriptor_t descriptor) const noexcept {
  (void)cudnnDestroyTensorDescriptor(descriptor);
}
void DestroyDnnDescriptor::operator()(cudnnFilterDescriptor_t descriptor) const noexcept {
  (void)cudnnDestroyFilterDescriptor(descriptor);
}
void DestroyDnnDescriptor::operator()(cudnnConvolutionDescriptor_t descriptor) const noexcept {
  (void)cudnnDestroyConvolutionDescriptor(descriptor);
}

ConvPlan::ConvPlan(const ConvArgs& args, ConvPass pass, cudnnHandle_t handle)
    : x_(make_tensor(args, args.sizes.groups * args.sizes.in, args.sizes.height.input,
                     args.sizes.width.input)),
      y_(make_tensor(args, args.sizes.groups * args.sizes.out, args.sizes.height.output,
                     args.sizes.width.output)),
      weight_(make_weight(args)),
      convolution_(make_convolution(args)) {
  const auto choose_for = pass == ConvPass::forward          ? choose<Forward>
                          : pass == ConvPass::input_gradient ? choose<InputGradient>
                                                             : choose<WeightGradient>;
  const Choice choice = choose_for(*this, args, handle);
  algorithm_ = choice.algorithm;
  workspace_bytes_ = choice.workspace_bytes;
}

std::shared_ptr<const ConvPlan> conv_plan(const ConvArgs& args, ConvPass pass, cudnnHandle_t handle,
                                          Device device) {
  PlanCache& cache = plan_cache();
  const PlanKey key = key_of(args, pass, device);
  const std::lock_guard lock(cache.mutex);
  if (const auto found = cache.plans.find(key); found != cache.plans.end()) return found->second;
  auto plan = std::make_shared<const ConvPlan>(args, pass, handle);
  // As for products: a program that keeps changing shapes starts over now and then.
  if (cache.plans.size() >= kMaxPlans) cache.plans.clear();
  cache.plans.emplace(key, plan);
  return plan;
}

}  // namespace capstan::gpu

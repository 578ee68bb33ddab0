// The plan cache is keyed by everything that the library's choice depends on. Asking the library
// costs tens of microseconds, a hit a fraction of one.

#include "ops/gpu/matmul_plan.cuh"

#include <algorithm>
#include <array>
#include <mutex>
#include <unordered_map>

#include "framework/runtime/cuda_blas_check.h"

namespace capstan::gpu {
namespace {

constexpr std::size_t kMaxWorkspace = std::size_t{64} << 20;
constexpr std::size_t kMaxPlans = 4096;
constexpr std::uint32_t kMaxAlignment = 256;

/// Bytes to which the address is aligned, a power of two.
std::uint32_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address);
  return static_cast<std::uint32_t>(std::min<std::uintptr_t>(bits & (~bits + 1), kMaxAlignment));
}

template <typename Value>
void set(cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t which, Value value) {
  CAPSTAN_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(descriptor, which, &value, sizeof(value)));
}
template <typename Value>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which, Value value) {
  CAPSTAN_CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(layout, which, &value, sizeof(value)));
}
template <typename Value>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t which,
         Value value) {
  CAPSTAN_CUBLAS_CHECK(
      cublasLtMatmulPreferenceSetAttribute(preference, which, &value, sizeof(value)));
}

cudaDataType_t data_type_of(DType dtype) {
  switch (dtype) {
    case DType::float64: return CUDA_R_64F;
    case DType::float16: return CUDA_R_16F;
    case DType::bfloat16: return CUDA_R_16BF;
    default: return CUDA_R_32F;
  }
}

/// The layout of a row-major [rows, cols], which is the library's column-major [cols, rows].
Descriptor<cublasLtMatrixLayout_t> make_layout(DType dtype, std::int64_t rows, std::int64_t cols,
                                               std::int64_t leading, std::int64_t batch,
                                               std::int64_t batch_stride) {
  // With one row the distance between rows means nothing, but the library looks at it.
  if (rows == 1) leading = std::max(leading, cols);
  cublasLtMatrixLayout_t raw = nullptr;
  CAPSTAN_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&raw, data_type_of(dtype),
                                                  static_cast<std::uint64_t>(cols),
                                                  static_cast<std::uint64_t>(rows), leading));
  Descriptor<cublasLtMatrixLayout_t> layout(raw);
  if (batch > 1) {
    set(raw, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batch));
    set(raw, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batch_stride);
  }
  return layout;
}

Descriptor<cublasLtMatmulDesc_t> make_product(const MatmulArgs& args) {
  const bool is_double = args.dtype == DType::float64;
  cublasLtMatmulDesc_t raw = nullptr;
  CAPSTAN_CUBLAS_CHECK(cublasLtMatmulDescCreate(&raw,
                                                is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                                is_double ? CUDA_R_64F : CUDA_R_32F));
  Descriptor<cublasLtMatmulDesc_t> product(raw);
  // The library's first operand is our b.
  set(raw, CUBLASLT_MATMUL_DESC_TRANSA, args.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(raw, CUBLASLT_MATMUL_DESC_TRANSB, args.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  return product;
}

Descriptor<cublasLtMatmulPreference_t> make_preference(const MatmulArgs& args) {
  cublasLtMatmulPreference_t raw = nullptr;
  CAPSTAN_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&raw));
  Descriptor<cublasLtMatmulPreference_t> preference(raw);
  set(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxWorkspace);
  // In-place reductions add with atomics, in whatever order blocks finish.
  constexpr std::uint32_t kDeterministic =
      CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  set(raw, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kDeterministic);
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(args.b));
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(args.a));
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(args.c));
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(args.c));
  return preference;
}

using PlanKey = std::array<std::int64_t, 15>;

PlanKey key_of(const MatmulArgs& args, Device device) {
  return {args.m,
          args.n,
          args.k,
          args.batch,
          args.lda,
          args.ldb,
          args.ldc,
          args.a_batch_stride,
          args.b_batch_stride,
          args.c_batch_stride,
          alignment_of(args.a),
          alignment_of(args.b),
          alignment_of(args.c),
          static_cast<std::int64_t>(args.dtype),
          args.transpose_a + 2 * args.transpose_b + 4 * device.index};
}

struct HashKey {
  std::size_t operator()(const PlanKey& key) const noexcept {
    std::uint64_t hash = 0;
    for (const std::int64_t value : key) {
      hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

struct PlanCache {
  std::mutex mutex;
  std::unordered_map<PlanKey, std::shared_ptr<const MatmulPlan>, HashKey> plans;
};

PlanCache& plan_cache() {
  static auto* const cache = new PlanCache;  // the library may be gone when statics are destroyed
  return *cache;
}

}  // namespace

void DestroyDescriptor::operator()(cublasLtMatmulDesc_t descriptor) const noexcept {
  (void)cublasLtMatmulDescDestroy(descriptor);
}
void DestroyDescriptor::operator()(cublasLtMatrixLayout_t layout) const noexcept {
  (void)cublasLtMatrixLayoutDestroy(layout);
}
void DestroyDescriptor::operator()(cublasLtMatmulPreference_t preference) const noexcept {
  (void)cublasLtMatmulPreferenceDestroy(preference);
}

MatmulPlan::MatmulPlan(const MatmulArgs& args, cublasLtHandle_t handle)
    : product_(make_product(args)),
      a_(make_layout(args.dtype, args.transpose_a ? args.k : args.m,
                     args.transpose_a ? args.m : args.k, args.lda, args.batch,
                     args.a_batch_stride)),
      b_(make_layout(args.dtype, args.transpose_b ? args.n : args.k,
                     args.transpose_b ? args.k : args.n, args.ldb, args.batch,
                     args.b_batch_stride)),
      c_(make_layout(args.dtype, args.m, args.n, args.ldc, args.batch, args.c_batch_stride)) {
  const Descriptor<cublasLtMatmulPreference_t> preference = make_preference(args);
  int found = 0;
  CAPSTAN_CUBLAS_CHECK(cublasLtMatmulAlgoGetHeuristic(handle, product(), b(), a(), c(), c(),
                                                      preference.get(), 1, &choice_, &found));
  CAPSTAN_CHECK(found == 1 && choice_.state == CUBLAS_STATUS_SUCCESS, Error,
                "matmul: cuBLASLt has no algorithm, got m ", args.m, ", n ", args.n, ", k ", args.k,
                ", batch ", args.batch, ", ", args.dtype, "; make the operands contiguous");
}

std::shared_ptr<const MatmulPlan> matmul_plan(const MatmulArgs& args, cublasLtHandle_t handle,
                                              Device device) {
  PlanCache& cache = plan_cache();
  const PlanKey key = key_of(args, device);
  const std::lock_guard lock(cache.mutex);
  if (const auto found = cache.plans.find(key); found != cache.plans.end()) return found->second;
  auto plan = std::make_shared<const MatmulPlan>(args, handle);
  // A program that keeps changing shapes starts over now and then, rather than grow without bound.
  if (cache.plans.size() >= kMaxPlans) cache.plans.clear();
  cache.plans.emplace(key, plan);
  return plan;
}

}  // namespace capstan::gpu

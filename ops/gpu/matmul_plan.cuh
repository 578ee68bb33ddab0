// Host side only: what cuBLASLt is told about a product of given shapes, and its choice of
// algorithm.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <memory>
#include <type_traits>

#include "framework/core/device.h"
#include "ops/kernels.h"

namespace capstan::gpu {

/// Destroys the library's descriptors, which are plain host memory.
struct DestroyDescriptor {
  void operator()(cublasLtMatmulDesc_t descriptor) const noexcept;
  void operator()(cublasLtMatrixLayout_t layout) const noexcept;
  void operator()(cublasLtMatmulPreference_t preference) const noexcept;
};

template <typename Handle>
using Descriptor = std::unique_ptr<std::remove_pointer_t<Handle>, DestroyDescriptor>;

/// Immutable, hence shared between threads.
class MatmulPlan {
 public:
  /// @throws CudaError if the library has no algorithm for the product.
  MatmulPlan(const MatmulArgs& args, cublasLtHandle_t handle);

  [[nodiscard]] cublasLtMatmulDesc_t product() const noexcept { return product_.get(); }
  [[nodiscard]] cublasLtMatrixLayout_t a() const noexcept { return a_.get(); }
  [[nodiscard]] cublasLtMatrixLayout_t b() const noexcept { return b_.get(); }
  [[nodiscard]] cublasLtMatrixLayout_t c() const noexcept { return c_.get(); }
  [[nodiscard]] const cublasLtMatmulAlgo_t* algorithm() const noexcept { return &choice_.algo; }
  [[nodiscard]] std::size_t workspace_bytes() const noexcept { return choice_.workspaceSize; }

 private:
  Descriptor<cublasLtMatmulDesc_t> product_;
  Descriptor<cublasLtMatrixLayout_t> a_, b_, c_;
  cublasLtMatmulHeuristicResult_t choice_{};
};

/// The plan for these sizes, strides, dtype and alignments on `device`, made on first use.
[[nodiscard]] std::shared_ptr<const MatmulPlan> matmul_plan(const MatmulArgs& args,
                                                            cublasLtHandle_t handle, Device device);

}  // namespace capstan::gpu

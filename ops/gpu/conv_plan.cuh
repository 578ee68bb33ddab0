// Host side only: what cuDNN is told about a convolution of given sizes, and the algorithm chosen
// for it.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <memory>
#include <type_traits>

#include "framework/core/device.h"
#include "ops/conv_kernels.h"

namespace capstan::gpu {

enum class ConvPass : std::uint8_t { forward, input_gradient, weight_gradient };

/// Destroys the library's descriptors, which are plain host memory.
struct DestroyDnnDescriptor {
  void operator()(cudnnTensorDescriptor_t descriptor) const noexcept;
  void operator()(cudnnFilterDescriptor_t descriptor) const noexcept;
  void operator()(cudnnConvolutionDescriptor_t descriptor) const noexcept;
};

template <typename Handle>
using DnnDescriptor = std::unique_ptr<std::remove_pointer_t<Handle>, DestroyDnnDescriptor>;

/// Immutable, hence shared between threads.
class ConvPlan {
 public:
  /// @throws CudaError if the library refuses the sizes; Error if it has no algorithm that does
  ///   with the bounded workspace (and is deterministic, where that is wanted).
  ConvPlan(const ConvArgs& args, ConvPass pass, cudnnHandle_t handle);

  [[nodiscard]] cudnnTensorDescriptor_t x() const noexcept { return x_.get(); }
  [[nodiscard]] cudnnFilterDescriptor_t weight() const noexcept { return weight_.get(); }
  [[nodiscard]] cudnnTensorDescriptor_t y() const noexcept { return y_.get(); }
  [[nodiscard]] cudnnConvolutionDescriptor_t convolution() const noexcept {
    return convolution_.get();
  }
  /// The value of the pass's own enumeration of algorithms.
  [[nodiscard]] int algorithm() const noexcept { return algorithm_; }
  [[nodiscard]] std::size_t workspace_bytes() const noexcept { return workspace_bytes_; }

 private:
  DnnDescriptor<cudnnTensorDescriptor_t> x_, y_;
  DnnDescriptor<cudnnFilterDescriptor_t> weight_;
  DnnDescriptor<cudnnConvolutionDescriptor_t> convolution_;
  int algorithm_ = 0;
  std::size_t workspace_bytes_ = 0;
};

/// The plan for these sizes, dtype and wishes on `device`, made on first use.
[[nodiscard]] std::shared_ptr<const ConvPlan> conv_plan(const ConvArgs& args, ConvPass pass,
                                                        cudnnHandle_t handle, Device device);

}  // namespace capstan::gpu

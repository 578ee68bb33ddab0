#pragma once

#include <cstdint>
#include <initializer_list>

#include "framework/tensor/tensor.h"
#include "ops/kernels.h"

// From shapes and strides to the loops that kernels run.
namespace capstan::ops::detail {

struct LoopOperand {
  const Tensor& tensor;
  Walk& walk;
};

/// The loops over all elements of `shape`, to which every operand broadcasts, and how each operand
/// walks through them. The first operand is the one written; axes are ordered as they lie in it.
[[nodiscard]] LoopNest plan_loop(const Shape& shape, std::initializer_list<LoopOperand> operands);

/// Axes of one operand that are about to become a nest, outermost first.
class AxisList {
 public:
  /// Size 1 adds nothing; an axis that continues the previous one densely is merged into it.
  void add(std::int64_t size, std::int64_t stride) noexcept;
  /// `strides` gets those of the operand.
  [[nodiscard]] LoopNest finish(std::int64_t (&strides)[kMaxRank]) const noexcept;

 private:
  std::int64_t sizes_[kMaxRank];
  std::int64_t strides_[kMaxRank];
  int rank_ = 0;
};

/// True if writing `y` element by element could destroy elements of `x` that are read later: they
/// share memory without being the same view.
[[nodiscard]] bool overlaps_unevenly(const Tensor& x, const Tensor& y);

}  // namespace capstan::ops::detail

#include "ops/loop_nest.h"

#include <algorithm>

namespace capstan::ops::detail {
namespace {

constexpr int kMaxOperands = 4;

struct Axis {
  std::int64_t size;
  std::int64_t strides[kMaxOperands];
};

LoopNest dense_nest(std::int64_t numel) {
  LoopNest loop{};
  loop.numel = numel;
  loop.sizes[0] = numel;
  loop.rank = 1;
  loop.contiguous = true;
  return loop;
}

std::int64_t broadcast_stride(const Tensor& tensor, int back) {
  if (back > tensor.rank() || tensor.size(-back) == 1) return 0;
  return tensor.strides()[-back];
}

bool continues(const Axis& outer, const Axis& inner, int operands) {
  for (int i = 0; i < operands; ++i) {
    if (outer.strides[i] != inner.strides[i] * inner.size) return false;
  }
  return true;
}

LoopNest plan_strided(const Shape& shape, std::initializer_list<LoopOperand> operands) {
  const int count = static_cast<int>(operands.size());
  Axis axes[kMaxRank];
  int rank = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 1) continue;
    Axis next{shape[axis], {}};
    int i = 0;
    for (const LoopOperand& operand : operands) {
      next.strides[i++] = broadcast_stride(operand.tensor, shape.rank() - axis);
    }
    int place = rank++;
    for (; place > 0 && axes[place - 1].strides[0] < next.strides[0]; --place) {
      axes[place] = axes[place - 1];
    }
    axes[place] = next;
  }

  int merged = 0;
  for (int axis = 0; axis < rank; ++axis) {
    if (merged > 0 && continues(axes[merged - 1], axes[axis], count)) {
      const std::int64_t size = axes[merged - 1].size;
      axes[merged - 1] = axes[axis];
      axes[merged - 1].size *= size;
    } else {
      axes[merged++] = axes[axis];
    }
  }
  if (merged == 0) {  // a single element
    axes[merged++] = Axis{1, {1, 1, 1, 1}};
  }

  LoopNest loop{};
  loop.numel = shape.numel();
  loop.rank = merged;
  loop.contiguous = merged == 1;
  for (int axis = 0; axis < merged; ++axis) loop.sizes[axis] = axes[axis].size;
  int i = 0;
  for (const LoopOperand& operand : operands) {
    for (int axis = 0; axis < merged; ++axis) operand.walk.strides[axis] = axes[axis].strides[i];
    loop.contiguous = loop.contiguous && axes[0].strides[i] == 1;
    ++i;
  }
  return loop;
}

/// Addresses that the elements of `x` span, in bytes from the start of its storage.
struct Span {
  std::int64_t begin;
  std::int64_t end;
};

Span span_of(const Tensor& x) {
  const std::int64_t end = x.offset() + reach_of(x.shape(), x.strides());
  const auto width = static_cast<std::int64_t>(size_of(x.dtype()));
  return {x.offset() * width, end * width};
}

}  // namespace

LoopNest plan_loop(const Shape& shape, std::initializer_list<LoopOperand> operands) {
  bool dense = true;
  for (const LoopOperand& operand : operands) {
    operand.walk.data = operand.tensor.raw_data();
    dense = dense && operand.tensor.is_contiguous() && operand.tensor.shape() == shape;
  }
  if (!dense) return plan_strided(shape, operands);
  for (const LoopOperand& operand : operands) operand.walk.strides[0] = 1;
  return dense_nest(shape.numel());
}

void AxisList::add(std::int64_t size, std::int64_t stride) noexcept {
  if (size == 1) return;
  if (rank_ > 0 && strides_[rank_ - 1] == stride * size) {
    sizes_[rank_ - 1] *= size;
    strides_[rank_ - 1] = stride;
    return;
  }
  sizes_[rank_] = size;
  strides_[rank_] = stride;
  ++rank_;
}

LoopNest AxisList::finish(std::int64_t (&strides)[kMaxRank]) const noexcept {
  LoopNest loop = dense_nest(1);
  strides[0] = 1;
  if (rank_ == 0) return loop;
  loop.rank = rank_;
  for (int axis = 0; axis < rank_; ++axis) {
    loop.sizes[axis] = sizes_[axis];
    strides[axis] = strides_[axis];
    loop.numel *= sizes_[axis];
  }
  loop.contiguous = rank_ == 1 && strides_[0] == 1;
  return loop;
}

bool overlaps_unevenly(const Tensor& x, const Tensor& y) {
  if (!(x.storage() == y.storage()) || x.numel() == 0 || y.numel() == 0) return false;
  if (x.offset() == y.offset() && x.dtype() == y.dtype() && x.shape() == y.shape() &&
      x.strides() == y.strides()) {
    return false;
  }
  const Span a = span_of(x);
  const Span b = span_of(y);
  return a.begin < b.end && b.begin < a.end;
}

}  // namespace capstan::ops::detail

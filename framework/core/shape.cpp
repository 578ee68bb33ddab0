#include "framework/core/shape.h"

#include <algorithm>

#include "framework/core/error.h"

namespace capstan {

Shape::Shape(std::span<const std::int64_t> sizes) {
  CAPSTAN_CHECK(sizes.size() <= kMaxRank, ShapeError, "shape: at most ", kMaxRank,
                " dimensions, got ", sizes.size());
  std::copy(sizes.begin(), sizes.end(), sizes_.begin());
  rank_ = static_cast<int>(sizes.size());
}

Shape::Shape(std::initializer_list<std::int64_t> sizes)
    : Shape(std::span<const std::int64_t>(sizes.begin(), sizes.size())) {}

Shape Shape::filled(int rank, std::int64_t value) {
  Shape shape;
  for (int axis = 0; axis < rank; ++axis) shape.push_back(value);
  return shape;
}

std::int64_t Shape::numel() const noexcept {
  std::int64_t count = 1;
  for (const std::int64_t size : *this) count *= size;
  return count;
}

std::size_t Shape::checked(int axis) const {
  const int wanted = axis < 0 ? axis + rank_ : axis;
  CAPSTAN_CHECK(wanted >= 0 && wanted < rank_, IndexError, "shape: no axis ", axis, " in ", *this);
  return static_cast<std::size_t>(wanted);
}

void Shape::push_back(std::int64_t size) { insert(rank_, size); }

void Shape::insert(int axis, std::int64_t size) {
  CAPSTAN_CHECK(rank_ < kMaxRank, ShapeError, "shape: at most ", kMaxRank, " dimensions");
  std::copy_backward(sizes_.begin() + axis, sizes_.begin() + rank_, sizes_.begin() + rank_ + 1);
  sizes_[static_cast<std::size_t>(axis)] = size;
  ++rank_;
}

void Shape::erase(int axis) {
  const std::size_t at = checked(axis);
  std::copy(sizes_.begin() + static_cast<std::ptrdiff_t>(at) + 1, sizes_.begin() + rank_,
            sizes_.begin() + static_cast<std::ptrdiff_t>(at));
  --rank_;
}

bool operator==(const Shape& a, const Shape& b) noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  for (int axis = 0; axis < shape.rank(); ++axis) out << (axis == 0 ? "" : ", ") << shape[axis];
  return out << ']';
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = shape;
  std::int64_t step = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[axis] = step;
    step *= std::max<std::int64_t>(shape[axis], 1);
  }
  return strides;
}

std::int64_t reach_of(const Shape& shape, const Strides& strides) {
  std::int64_t last = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 0) return 0;
    last += (shape[axis] - 1) * strides[axis];
  }
  return last + 1;
}

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op) {
  if (a == b) return a;
  Shape result = Shape::filled(std::max(a.rank(), b.rank()), 1);
  for (int back = 1; back <= result.rank(); ++back) {
    const std::int64_t left = back <= a.rank() ? a[-back] : 1;
    const std::int64_t right = back <= b.rank() ? b[-back] : 1;
    CAPSTAN_CHECK(left == right || left == 1 || right == 1, ShapeError, op,
                  ": shapes do not broadcast, got ", a, " and ", b,
                  "; sizes must be equal or 1, aligned at the last axis");
    result[-back] = left == 1 ? right : left;
  }
  return result;
}

int normalize_axis(int axis, int rank, const char* op) {
  const int wanted = axis < 0 ? axis + rank : axis;
  CAPSTAN_CHECK(wanted >= 0 && wanted < rank, IndexError, op, ": axis must be in [", -rank, ", ",
                rank - 1, "], got ", axis);
  return wanted;
}

}  // namespace capstan

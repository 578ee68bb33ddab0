#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>

namespace capstan {

inline constexpr int kMaxRank = 8;

/// A short list of 64-bit sizes (or strides, or axes), at most `kMaxRank` long, without heap
/// memory.
class Shape {
 public:
  constexpr Shape() noexcept = default;
  /// @throws ShapeError  if there are more than kMaxRank entries.
  Shape(std::initializer_list<std::int64_t> sizes);
  explicit Shape(std::span<const std::int64_t> sizes);
  /// `rank` entries, all `value`.
  [[nodiscard]] static Shape filled(int rank, std::int64_t value);

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] bool empty() const noexcept { return rank_ == 0; }
  /// Product of the entries, 1 for rank 0.
  [[nodiscard]] std::int64_t numel() const noexcept;

  /// Entry `axis`; a negative axis counts from the end. @throws IndexError out of range.
  [[nodiscard]] std::int64_t operator[](int axis) const { return sizes_[checked(axis)]; }
  [[nodiscard]] std::int64_t& operator[](int axis) { return sizes_[checked(axis)]; }
  [[nodiscard]] std::int64_t back() const { return (*this)[-1]; }

  void push_back(std::int64_t size);
  void insert(int axis, std::int64_t size);
  void erase(int axis);

  [[nodiscard]] const std::int64_t* data() const noexcept { return sizes_.data(); }
  [[nodiscard]] const std::int64_t* begin() const noexcept { return sizes_.data(); }
  [[nodiscard]] const std::int64_t* end() const noexcept { return sizes_.data() + rank_; }

  friend bool operator==(const Shape& a, const Shape& b) noexcept;

 private:
  [[nodiscard]] std::size_t checked(int axis) const;

  std::array<std::int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

/// In elements, not bytes.
using Strides = Shape;
/// Axes of a reduction; negative ones count from the end.
using Axes = Shape;

/// "[2, 3]".
std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// Strides of a dense row-major tensor.
[[nodiscard]] Strides contiguous_strides(const Shape& shape);

/// Elements from the first to the last one that a view reaches, both included; 0 if it has none.
[[nodiscard]] std::int64_t reach_of(const Shape& shape, const Strides& strides);

/// The common shape under the usual broadcasting rule (sizes aligned at the end, 1 stretches).
/// @throws ShapeError  naming `op` and both shapes.
[[nodiscard]] Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op);

/// `axis` as a non-negative index into `rank` axes. @throws IndexError naming `op`.
[[nodiscard]] int normalize_axis(int axis, int rank, const char* op);

}  // namespace capstan

#pragma once

#include <cstdint>

namespace capstan {

/// Something along the height and the width of an image; one number means both.
struct Size2d {
  std::int64_t height, width;
  constexpr Size2d(std::int64_t both) noexcept : height(both), width(both) {}
  constexpr Size2d(int both) noexcept : height(both), width(both) {}
  constexpr Size2d(std::int64_t h, std::int64_t w) noexcept : height(h), width(w) {}
  [[nodiscard]] constexpr bool operator==(const Size2d&) const noexcept = default;
};

}  // namespace capstan

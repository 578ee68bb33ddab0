#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/core/call_site.h"
#include "framework/core/shape.h"

namespace capstan {

/// Unsigned bytes, row-major.
struct IdxArray {
  Shape shape;
  std::vector<std::uint8_t> values;
};

/// Reads an IDX file of unsigned bytes, the format of MNIST and its relatives, plain or compressed
/// with gzip; which of the two is told from the contents, not from the name.
/// @param rank  axes that the file must have: 3 for images, 1 for labels.
/// @throws DataError  naming the file, what was expected and what it holds: cannot be opened, is no
///   IDX file, other element type or rank, truncated or damaged, trailing bytes.
[[nodiscard]] IdxArray read_idx(const std::string& path, int rank, Where where = Where::current());

}  // namespace capstan

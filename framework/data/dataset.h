#pragma once

#include <cstdint>
#include <string>

#include "framework/tensor/tensor.h"

namespace capstan {

/// Labelled samples in host memory.
struct Dataset {
  Tensor inputs;  ///< [N, ...], uint8 or float32
  Tensor labels;  ///< [N], uint8 or int64, in [0, classes)
  std::int64_t classes = 0;

  [[nodiscard]] std::int64_t size() const { return inputs.size(0); }
};

enum class Split : std::uint8_t { train, test };

/// Where the Debian package dataset-fashion-mnist puts its files.
inline constexpr const char* kFashionMnistDirectory = "/usr/share/datasets/fashion-mnist";

/// Fashion-MNIST: 60,000 (train) or 10,000 (test) grey images, uint8 [N, 28, 28], of 10 kinds of
/// clothing. Reads the files with the usual names, plain or with `.gz`; MNIST itself has the same
/// names and can be read by passing its directory.
/// @throws DataError  if a file is missing or malformed, or if the two do not fit together.
[[nodiscard]] Dataset load_fashion_mnist(const std::string& directory = kFashionMnistDirectory,
                                         Split split = Split::train,
                                         Where where = Where::current());

/// An easy data set that needs no files: uint8 [count, 28, 28] images, each a blurred pattern of
/// its class (the same for every seed), shifted, dimmed and overlaid with noise. The same on every
/// run for one seed; take another seed for a test set.
/// @throws ValueError  unless count >= 1 and 2 <= classes <= 256.
[[nodiscard]] Dataset synthetic_images(std::int64_t count, std::int64_t classes = 10,
                                       std::uint64_t seed = 0, Where where = Where::current());

}  // namespace capstan

#include "framework/data/dataset.h"

#include <doctest/doctest.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/core/error.h"
#include "tests/data/temporary_directory.h"

namespace capstan {
namespace {

using testing::Bytes;
using testing::idx_bytes;
using testing::TemporaryDirectory;

constexpr std::size_t kPixels = 28 * 28;

void write_pair(const TemporaryDirectory& directory, const std::string& prefix, const Bytes& labels,
                std::uint32_t images) {
  directory.write_gzip(prefix + "-images-idx3-ubyte.gz",
                       idx_bytes({images, 28, 28}, Bytes(images * kPixels, 9)));
  directory.write(prefix + "-labels-idx1-ubyte",
                  idx_bytes({static_cast<std::uint32_t>(labels.size())}, labels));
}

// Share of `test` whose nearest class mean, taken over `train`, is the right one.
double nearest_mean_accuracy(const Dataset& train, const Dataset& test) {
  const auto classes = static_cast<std::size_t>(train.classes);
  std::vector<std::array<double, kPixels>> means(classes);
  std::vector<double> counts(classes);
  const auto* images = train.inputs.data<std::uint8_t>();
  const auto* labels = train.labels.data<std::uint8_t>();
  for (std::int64_t i = 0; i < train.size(); ++i) {
    ++counts[labels[i]];
    for (std::size_t p = 0; p < kPixels; ++p) {
      means[labels[i]][p] += images[static_cast<std::size_t>(i) * kPixels + p];
    }
  }
  images = test.inputs.data<std::uint8_t>();
  labels = test.labels.data<std::uint8_t>();
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < test.size(); ++i) {
    std::size_t best = 0;
    double least = 1e30;
    for (std::size_t c = 0; c < classes; ++c) {
      double distance = 0.0;
      for (std::size_t p = 0; p < kPixels; ++p) {
        const double difference =
            images[static_cast<std::size_t>(i) * kPixels + p] - means[c][p] / counts[c];
        distance += difference * difference;
      }
      if (distance < least) {
        least = distance;
        best = c;
      }
    }
    right += best == labels[i];
  }
  return static_cast<double>(right) / static_cast<double>(test.size());
}

}  // namespace

TEST_SUITE("data/dataset") {
  TEST_CASE("reads both splits under their usual names") {
    const TemporaryDirectory directory;
    write_pair(directory, "train", {3, 9, 0}, 3);
    write_pair(directory, "t10k", {1}, 1);
    const Dataset train = load_fashion_mnist(directory.path(), Split::train);
    CHECK(train.inputs.shape() == Shape{3, 28, 28});
    CHECK(train.inputs.dtype() == DType::uint8);
    CHECK(train.inputs.to_vector<int>().at(2 * kPixels) == 9);
    CHECK(train.labels.to_vector<int>() == std::vector<int>{3, 9, 0});
    CHECK(train.classes == 10);
    CHECK(train.size() == 3);
    CHECK(load_fashion_mnist(directory.path(), Split::test).size() == 1);
  }

  TEST_CASE("a missing file says which package has it") {
    const TemporaryDirectory directory;
    CHECK_THROWS_WITH_AS((void)load_fashion_mnist(directory.path(), Split::test),
                         doctest::Contains("t10k-images-idx3-ubyte.gz in"), DataError);
    CHECK_THROWS_WITH_AS((void)load_fashion_mnist(directory.path(), Split::test),
                         doctest::Contains("install the Debian package dataset-fashion-mnist"),
                         DataError);
  }

  TEST_CASE("files that do not fit together are refused with both counts") {
    const TemporaryDirectory directory;
    write_pair(directory, "train", {1, 2}, 3);
    CHECK_THROWS_WITH_AS((void)load_fashion_mnist(directory.path(), Split::train),
                         doctest::Contains("has 3 images and"), DataError);
    write_pair(directory, "train", {1, 10}, 2);
    CHECK_THROWS_WITH_AS((void)load_fashion_mnist(directory.path(), Split::train),
                         doctest::Contains("must be below 10, got 10 at position 1"), DataError);
    directory.write_gzip("train-images-idx3-ubyte.gz", idx_bytes({2, 2, 2}, Bytes(8)));
    CHECK_THROWS_WITH_AS((void)load_fashion_mnist(directory.path(), Split::train),
                         doctest::Contains("must be 28 x 28, got sizes [2, 2, 2]"), DataError);
  }

  TEST_CASE("the installed Fashion-MNIST has its published sizes") {
    if (!std::filesystem::exists(kFashionMnistDirectory)) return;
    const Dataset test = load_fashion_mnist(kFashionMnistDirectory, Split::test);
    CHECK(test.inputs.shape() == Shape{10000, 28, 28});
    std::array<int, 10> counts{};
    for (const int label : test.labels.to_vector<int>())
      ++counts.at(static_cast<std::size_t>(label));
    for (const int count : counts) CHECK(count == 1000);
  }

  TEST_CASE("synthetic images repeat for a seed and differ between seeds") {
    const Dataset a = synthetic_images(20, 10, 1);
    CHECK(a.inputs.shape() == Shape{20, 28, 28});
    CHECK(a.labels.shape() == Shape{20});
    const std::vector<int> pixels = a.inputs.to_vector<int>();
    CHECK((synthetic_images(20, 10, 1).inputs.to_vector<int>() == pixels));
    CHECK_FALSE((synthetic_images(20, 10, 2).inputs.to_vector<int>() == pixels));
    // A longer set begins with the same images.
    const std::vector<int> longer = synthetic_images(21, 10, 1).inputs.to_vector<int>();
    CHECK(std::equal(pixels.begin(), pixels.end(), longer.begin()));
  }

  TEST_CASE("synthetic classes can be learned from one seed and recognised under another") {
    const double accuracy =
        nearest_mean_accuracy(synthetic_images(1000, 10, 1), synthetic_images(500, 10, 2));
    CHECK(accuracy > 0.95);
  }

  TEST_CASE("synthetic images refuse impossible sizes") {
    CHECK_THROWS_WITH_AS((void)synthetic_images(0), doctest::Contains("count must be positive"),
                         ValueError);
    CHECK_THROWS_WITH_AS((void)synthetic_images(5, 257),
                         doctest::Contains("classes must be 2 to 256, got 257"), ValueError);
  }
}

}  // namespace capstan

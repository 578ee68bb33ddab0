#include "framework/data/dataset.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "framework/core/error.h"
#include "framework/data/idx.h"
#include "framework/random/philox.h"

namespace capstan {
namespace {

constexpr std::int64_t kSide = 28;
constexpr std::int64_t kPixels = kSide * kSide;
constexpr std::int64_t kClothes = 10;

std::string find_file(const std::string& directory, const std::string& name) {
  for (const char* ending : {"", ".gz"}) {
    std::string path = directory + "/" + name + ending;
    if (access(path.c_str(), F_OK) == 0) return path;
  }
  throw DataError(detail::concat(
      "load_fashion_mnist: found neither ", name, " nor ", name, ".gz in ", directory,
      "; install the Debian package dataset-fashion-mnist, or pass the directory of the files"));
}

// Random words of one image or pattern, in order.
class Words {
 public:
  Words(std::uint64_t key, std::uint64_t number) : key_(key), number_(number) {}

  std::uint32_t next() {
    if (used_ == 4) {
      block_ = philox(key_, count_++, number_);
      used_ = 0;
    }
    return block_.word[used_++];
  }
  float uniform(float low, float high) { return low + (high - low) * to_uniform(next()); }
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint32_t>(bound));
  }

 private:
  std::uint64_t key_;
  std::uint64_t number_;
  std::uint64_t count_ = 0;
  PhiloxBlock block_{};
  int used_ = 4;
};

using Pattern = std::array<float, kPixels>;

// A few soft spots at places of the class's own, in [0, 1].
Pattern make_pattern(std::int64_t label) {
  constexpr std::uint64_t kPatternKey = 0x7061747465726e73;
  constexpr int kSpots = 5;
  Words words(kPatternKey, static_cast<std::uint64_t>(label));
  Pattern pattern{};
  for (int spot = 0; spot < kSpots; ++spot) {
    const float row = words.uniform(5.0f, 23.0f);
    const float column = words.uniform(5.0f, 23.0f);
    const float width = words.uniform(2.0f, 4.0f);
    for (std::int64_t pixel = 0; pixel < kPixels; ++pixel) {
      const float down = static_cast<float>(pixel / kSide) - row;
      const float across = static_cast<float>(pixel % kSide) - column;
      const float distance = (down * down + across * across) / (2.0f * width * width);
      float& value = pattern[static_cast<std::size_t>(pixel)];
      value = std::min(1.0f, value + std::exp(-distance));
    }
  }
  return pattern;
}

void draw(const Pattern& pattern, Words& words, std::uint8_t* image) {
  const std::int64_t down = words.below(3) - 1;
  const std::int64_t across = words.below(3) - 1;
  const float brightness = words.uniform(120.0f, 220.0f);
  for (std::int64_t pixel = 0; pixel < kPixels; ++pixel) {
    const std::int64_t row = pixel / kSide - down;
    const std::int64_t column = pixel % kSide - across;
    const bool inside = row >= 0 && row < kSide && column >= 0 && column < kSide;
    const float ink =
        inside ? pattern[static_cast<std::size_t>(row * kSide + column)] * brightness : 0.0f;
    const float value = ink + words.uniform(-60.0f, 60.0f);
    image[pixel] = static_cast<std::uint8_t>(std::lround(std::clamp(value, 0.0f, 255.0f)));
  }
}

}  // namespace

Dataset load_fashion_mnist(const std::string& directory, Split split, Where where) {
  const CallSite site(where);
  const std::string prefix = split == Split::train ? "train" : "t10k";
  const std::string image_file = find_file(directory, prefix + "-images-idx3-ubyte");
  const std::string label_file = find_file(directory, prefix + "-labels-idx1-ubyte");
  const IdxArray images = read_idx(image_file, 3);
  const IdxArray labels = read_idx(label_file, 1);

  CAPSTAN_CHECK(images.shape[1] == kSide && images.shape[2] == kSide, DataError,
                "load_fashion_mnist: images of ", image_file, " must be 28 x 28, got sizes ",
                images.shape, "; check that this is the right file");
  CAPSTAN_CHECK(images.shape[0] == labels.shape[0], DataError, "load_fashion_mnist: ", image_file,
                " has ", images.shape[0], " images and ", label_file, " ", labels.shape[0],
                " labels; take both files from one data set");
  const auto bad = std::find_if(labels.values.begin(), labels.values.end(),
                                [](std::uint8_t label) { return label >= kClothes; });
  CAPSTAN_CHECK(bad == labels.values.end(), DataError, "load_fashion_mnist: labels of ", label_file,
                " must be below ", kClothes, ", got ", int{*bad}, " at position ",
                bad - labels.values.begin(), "; fetch the file again");
  return {Tensor::from_vector(images.shape, images.values),
          Tensor::from_vector(labels.shape, labels.values), kClothes};
}

Dataset synthetic_images(std::int64_t count, std::int64_t classes, std::uint64_t seed,
                         Where where) {
  const CallSite site(where);
  CAPSTAN_CHECK(count >= 1, ValueError, "synthetic_images: count must be positive, got ", count);
  CAPSTAN_CHECK(classes >= 2 && classes <= 256, ValueError,
                "synthetic_images: classes must be 2 to 256, got ", classes);
  std::vector<Pattern> patterns;
  for (std::int64_t label = 0; label < classes; ++label) patterns.push_back(make_pattern(label));

  std::vector<std::uint8_t> images(static_cast<std::size_t>(count * kPixels));
  std::vector<std::uint8_t> labels(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    Words words(seed, static_cast<std::uint64_t>(i));
    const std::int64_t label = words.below(classes);
    labels[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(label);
    draw(patterns[static_cast<std::size_t>(label)], words, images.data() + i * kPixels);
  }
  return {Tensor::from_vector({count, kSide, kSide}, images), Tensor::from_vector({count}, labels),
          classes};
}

}  // namespace capstan

// Convolutions as matrix products: a panel holds, for some outputs of an image, the inputs that the
// taps meet (im2col), lives on the stack and is multiplied by Eigen. Work is cut in the same way
// for any number of threads, so results do not depend on it.

#include <algorithm>

#include "framework/core/dtype_visit.h"
#include "framework/runtime/parallel.h"
#include "ops/conv_kernels.h"
#include "ops/cpu/conv_depthwise.h"
#include "ops/cpu/conv_taps.h"
#include "ops/cpu/eigen.h"

namespace capstan::cpu {
namespace {

// 256 KiB of stack for float, which a second-level cache holds.
constexpr std::int64_t kPanelRows = 256;
constexpr std::int64_t kPanelCols = 256;
// Multiplications that pay for waking another thread.
constexpr std::int64_t kWorthAThread = 500000;

template <typename T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <typename T>
using View = Eigen::Map<Matrix<T>, Eigen::Unaligned, Eigen::OuterStride<>>;
template <typename T>
using ConstView = Eigen::Map<const Matrix<T>, Eigen::Unaligned, Eigen::OuterStride<>>;

struct Range {
  std::int64_t begin, end;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};

std::int64_t taps_of(const ConvSizes& s) { return s.height.kernel * s.width.kernel; }
std::int64_t inputs_of(const ConvSizes& s) { return s.height.input * s.width.input; }
std::int64_t outputs_of(const ConvSizes& s) { return s.height.output * s.width.output; }
/// Rows of a whole panel: taps of all channels of a group.
std::int64_t depth_of(const ConvSizes& s) { return s.in * taps_of(s); }

/// A group of one image.
template <typename T>
struct Image {
  T* x;
  T* weight;
  T* y;
};

template <typename T>
Image<T> image_of(const ConvArgs& args, std::int64_t index) {
  const ConvSizes& s = args.sizes;
  const std::int64_t group = index % s.groups;
  return {static_cast<T*>(args.x) + index * s.in * inputs_of(s),
          static_cast<T*>(args.weight) + group * s.out * depth_of(s),
          static_cast<T*>(args.y) + index * s.out * outputs_of(s)};
}

/// Calls `body(output, tap start, count)` for the stretches of outputs `cols` that lie in one row
/// of the image and meet, at the tap of panel row `k`, inputs inside of it; `skip(at, count)` for
/// what meets padding. `at` counts from cols.begin.
template <typename Body, typename Skip>
void for_each_stretch(const ConvSizes& s, std::int64_t k, Range cols, const Body& body,
                      const Skip& skip) {
  const std::int64_t channel = k / taps_of(s);
  const std::int64_t tap_y = k % taps_of(s) / s.width.kernel;
  const std::int64_t tap_x = k % s.width.kernel;
  const TapRange across = tap_range(s.width, tap_x);
  std::int64_t row = cols.begin / s.width.output;
  for (std::int64_t p = cols.begin; p < cols.end; ++row) {
    const std::int64_t first = p - row * s.width.output;
    const std::int64_t last = std::min(s.width.output, first + cols.end - p);
    const std::int64_t at = p - cols.begin;
    const std::int64_t y = row * s.height.stride - s.height.padding + tap_y * s.height.dilation;
    const bool inside = y >= 0 && y < s.height.input;
    const std::int64_t low = inside ? std::clamp(across.begin, first, last) : last;
    const std::int64_t high = inside ? std::clamp(across.end, low, last) : last;
    if (low > first) skip(at, low - first);
    if (high > low) {
      const std::int64_t x = low * s.width.stride + across.offset;
      body(at + low - first, (channel * s.height.input + y) * s.width.input + x, high - low);
    }
    if (last > high) skip(at + high - first, last - high);
    p += last - first;
  }
}

/// panel[k, p] = the input that tap k of output p meets, for panel rows `rows` and outputs `cols`.
template <typename T>
void gather_panel(const ConvSizes& s, const T* x, Range rows, Range cols, T* panel) {
  const std::int64_t stride = s.width.stride;
  for (std::int64_t k = rows.begin; k < rows.end; ++k) {
    T* const line = panel + (k - rows.begin) * cols.size();
    for_each_stretch(
        s, k, cols,
        [=](std::int64_t at, std::int64_t from, std::int64_t count) {
          if (stride == 1) {
            std::copy_n(x + from, count, line + at);
          } else {
            for (std::int64_t i = 0; i < count; ++i) line[at + i] = x[from + i * stride];
          }
        },
        [=](std::int64_t at, std::int64_t count) { std::fill_n(line + at, count, T{0}); });
  }
}

/// Adds panel[k, p] to the input that tap k of output p meets.
template <typename T>
void scatter_panel(const ConvSizes& s, const T* panel, Range rows, Range cols, T* x) {
  const std::int64_t stride = s.width.stride;
  for (std::int64_t k = rows.begin; k < rows.end; ++k) {
    const T* const line = panel + (k - rows.begin) * cols.size();
    for_each_stretch(
        s, k, cols,
        [=](std::int64_t at, std::int64_t to, std::int64_t count) {
          if (stride == 1) {
            for (std::int64_t i = 0; i < count; ++i) x[to + i] += line[at + i];
          } else {
            for (std::int64_t i = 0; i < count; ++i) x[to + i * stride] += line[at + i];
          }
        },
        [](std::int64_t, std::int64_t) {});
  }
}

/// Calls `body(part)` for consecutive parts of `range` of at most `length`.
template <typename Body>
void for_each_part(Range range, std::int64_t length, const Body& body) {
  for (std::int64_t at = range.begin; at < range.end; at += length) {
    body(Range{at, std::min(range.end, at + length)});
  }
}

/// Calls `body(unit)` for units of `work` multiplications each, on several threads.
template <typename Body>
void for_each_unit(std::int64_t units, std::int64_t work, const Body& body) {
  parallel_for(units, std::max<std::int64_t>(1, kWorthAThread / std::max<std::int64_t>(1, work)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t unit = begin; unit < end; ++unit) body(unit);
               });
}

template <typename T>
void forward(const ConvArgs& args) {
  const ConvSizes& s = args.sizes;
  const std::int64_t outputs = outputs_of(s);
  const std::int64_t depth = depth_of(s);
  const std::int64_t tiles = (outputs + kPanelCols - 1) / kPanelCols;
  const T* const bias = static_cast<const T*>(args.bias);
  for_each_unit(
      s.batch * s.groups * tiles, s.out * depth * std::min(outputs, kPanelCols),
      [&](std::int64_t unit) {
        const std::int64_t index = unit / tiles;
        const Image<T> image = image_of<T>(args, index);
        const std::int64_t begin = unit % tiles * kPanelCols;
        const Range cols{begin, std::min(outputs, begin + kPanelCols)};
        View<T> y(image.y + cols.begin, s.out, cols.size(), Eigen::OuterStride<>(outputs));
        for (std::int64_t c = 0; c < s.out; ++c) {
          y.row(c).setConstant(bias != nullptr ? bias[index % s.groups * s.out + c] : T{0});
        }
        alignas(64) T panel[kPanelRows * kPanelCols];
        for_each_part({0, depth}, kPanelRows, [&](Range rows) {
          gather_panel<T>(s, image.x, rows, cols, panel);
          const ConstView<T> weight(image.weight + rows.begin, s.out, rows.size(),
                                    Eigen::OuterStride<>(depth));
          y.noalias() += weight * ConstView<T>(panel, rows.size(), cols.size(),
                                               Eigen::OuterStride<>(cols.size()));
        });
      });
}

// A unit owns some channels of one image, so that no two threads add to one element.
template <typename T>
void input_gradient(const ConvArgs& args) {
  const ConvSizes& s = args.sizes;
  const std::int64_t outputs = outputs_of(s);
  const std::int64_t taps = taps_of(s);
  const std::int64_t channels = std::clamp<std::int64_t>(kPanelRows / taps, 1, s.in);
  const std::int64_t blocks = (s.in + channels - 1) / channels;
  for_each_unit(
      s.batch * s.groups * blocks, s.out * channels * taps * outputs, [&](std::int64_t unit) {
        const Image<T> image = image_of<T>(args, unit / blocks);
        const std::int64_t first = unit % blocks * channels;
        const Range own{first, std::min(s.in, first + channels)};
        std::fill(image.x + own.begin * inputs_of(s), image.x + own.end * inputs_of(s), T{0});
        alignas(64) T panel[kPanelRows * kPanelCols];
        for_each_part({0, outputs}, kPanelCols, [&](Range cols) {
          for_each_part({own.begin * taps, own.end * taps}, kPanelRows, [&](Range rows) {
            const ConstView<T> weight(image.weight + rows.begin, s.out, rows.size(),
                                      Eigen::OuterStride<>(depth_of(s)));
            const ConstView<T> grad(image.y + cols.begin, s.out, cols.size(),
                                    Eigen::OuterStride<>(outputs));
            View<T>(panel, rows.size(), cols.size(), Eigen::OuterStride<>(cols.size())).noalias() =
                weight.transpose() * grad;
            scatter_panel<T>(s, panel, rows, cols, image.x);
          });
        });
      });
}

/// Columns of the weight in one unit: few enough to keep some threads busy.
std::int64_t weight_block(std::int64_t depth) {
  return std::min<std::int64_t>(64, std::max<std::int64_t>(8, (depth + 7) / 8));
}

// A unit owns some columns of one group's weight and adds up all images.
template <typename T>
void weight_gradient(const ConvArgs& args) {
  const ConvSizes& s = args.sizes;
  const std::int64_t outputs = outputs_of(s);
  const std::int64_t depth = depth_of(s);
  const std::int64_t block = weight_block(depth);
  const std::int64_t blocks = (depth + block - 1) / block;
  for_each_unit(s.groups * blocks, s.batch * s.out * block * outputs, [&](std::int64_t unit) {
    const std::int64_t group = unit / blocks;
    const std::int64_t begin = unit % blocks * block;
    const Range rows{begin, std::min(depth, begin + block)};
    View<T> dweight(image_of<T>(args, group).weight + rows.begin, s.out, rows.size(),
                    Eigen::OuterStride<>(depth));
    dweight.setZero();
    alignas(64) T panel[kPanelRows * kPanelCols];
    for (std::int64_t n = 0; n < s.batch; ++n) {
      const Image<T> image = image_of<T>(args, n * s.groups + group);
      for_each_part({0, outputs}, kPanelCols, [&](Range cols) {
        gather_panel<T>(s, image.x, rows, cols, panel);
        const ConstView<T> grad(image.y + cols.begin, s.out, cols.size(),
                                Eigen::OuterStride<>(outputs));
        dweight.noalias() +=
            grad * ConstView<T>(panel, rows.size(), cols.size(), Eigen::OuterStride<>(cols.size()))
                       .transpose();
      });
    }
  });
}

bool is_depthwise(const ConvSizes& s) { return s.in == 1 && s.out == 1; }

}  // namespace

void conv(const ConvArgs& args) {
  if (is_depthwise(args.sizes)) return conv_depthwise(args);
  visit_full_floating(args.dtype, "conv2d", [&]<typename T>() { forward<T>(args); });
}

void conv_input_gradient(const ConvArgs& args) {
  if (is_depthwise(args.sizes)) return conv_depthwise_input_gradient(args);
  visit_full_floating(args.dtype, "conv2d", [&]<typename T>() { input_gradient<T>(args); });
}

void conv_weight_gradient(const ConvArgs& args) {
  if (is_depthwise(args.sizes)) return conv_depthwise_weight_gradient(args);
  visit_full_floating(args.dtype, "conv2d", [&]<typename T>() { weight_gradient<T>(args); });
}

}  // namespace capstan::cpu

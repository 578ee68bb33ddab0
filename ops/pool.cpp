#include "ops/pool.h"

#include <limits>

#include "framework/runtime/dispatch.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/op_scope.h"
#include "ops/checks.h"
#include "ops/elementwise.h"
#include "ops/pool_kernels.h"
#include "ops/pool_windows.h"

namespace capstan::ops {
namespace {

/// One axis as the user gave it; `name` is "height" or "width".
struct AxisRequest {
  const char* name;
  std::int64_t input, kernel, stride, padding, dilation;
};

PoolAxis axis_of(const char* op, const AxisRequest& want, bool ceil_mode) {
  // Bounded, so that no product of two overflows.
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const auto check = [&](const char* what, std::int64_t value, std::int64_t least) {
    CAPSTAN_CHECK(value >= least && value <= kMost, ValueError, op, ": the ", what, " along the ",
                  want.name, " must be at least ", least, ", got ", value);
  };
  check("window", want.kernel, 1);
  check("stride", want.stride, 1);
  check("padding", want.padding, 0);
  check("dilation", want.dilation, 1);
  const std::int64_t reach = want.dilation * (want.kernel - 1) + 1;
  CAPSTAN_CHECK(want.padding <= reach / 2, ValueError, op, ": padding along the ", want.name,
                " must be at most half of the window, which reaches over ", reach, ", got ",
                want.padding);
  const std::int64_t room = want.input + 2 * want.padding;
  CAPSTAN_CHECK(want.input >= 1 && reach <= room, ShapeError, op, ": the window's ", want.name,
                " reaches over ", reach, ", more than the ", room,
                " of x with its padding; use a smaller window");
  std::int64_t output = (room - reach + (ceil_mode ? want.stride - 1 : 0)) / want.stride + 1;
  // The last window has to begin in x or in the padding before it.
  if (ceil_mode && (output - 1) * want.stride >= want.input + want.padding) --output;
  const PoolAxis axis{want.input, output, want.kernel, want.stride, want.padding, want.dilation};
  for (std::int64_t o = 0; want.dilation > 1 && o < output; ++o) {
    const PoolWindow window = pool_window(axis, o);
    CAPSTAN_CHECK(window.begin < window.end, ShapeError, op, ": along the ", want.name, " window ",
                  o, " meets padding alone, got size ", want.input, ", window ", want.kernel,
                  ", padding ", want.padding, " and dilation ", want.dilation);
  }
  return axis;
}

struct Windows {
  Size2d kernel, stride, padding, dilation;
  bool ceil_mode;
};

void check_shape_of_image(const char* op, const Shape& x) {
  CAPSTAN_CHECK(x.rank() == 4, ShapeError, op,
                ": x must be [batch, channels, height, width], got shape ", x,
                "; add a batch with unsqueeze(0)");
}

PoolSizes sizes_of(const char* op, const Shape& x, const Windows& w) {
  check_shape_of_image(op, x);
  return {
      .planes = x[0] * x[1],
      .height = axis_of(
          op,
          {"height", x[2], w.kernel.height, w.stride.height, w.padding.height, w.dilation.height},
          w.ceil_mode),
      .width = axis_of(
          op, {"width", x[3], w.kernel.width, w.stride.width, w.padding.width, w.dilation.width},
          w.ceil_mode)};
}

PoolSizes sizes_of(const char* op, const Shape& x, Size2d kernel, const MaxPoolOptions& options) {
  return sizes_of(op, x,
                  {kernel, options.stride.value_or(kernel), options.padding, options.dilation,
                   options.ceil_mode});
}

PoolSizes sizes_of(const char* op, const Shape& x, Size2d kernel, const AvgPoolOptions& options) {
  return sizes_of(op, x,
                  {kernel, options.stride.value_or(kernel), options.padding, 1, options.ceil_mode});
}

PoolSizes adaptive_sizes(const Shape& x, Size2d output) {
  constexpr const char* kName = "adaptive_avg_pool2d";
  check_shape_of_image(kName, x);
  CAPSTAN_CHECK(output.height >= 1 && output.width >= 1, ValueError, kName,
                ": the output must be at least 1 x 1, got ", output.height, " x ", output.width);
  CAPSTAN_CHECK(x[2] >= 1 && x[3] >= 1, ShapeError, kName, ": the image is empty, got x of shape ",
                x);
  return {.planes = x[0] * x[1],
          .height = {x[2], output.height, 0, 0, 0, 1},
          .width = {x[3], output.width, 0, 0, 0, 1}};
}

Shape output_shape(const Shape& x, const PoolSizes& sizes) {
  return {x[0], x[1], sizes.height.output, sizes.width.output};
}

/// The CPU has no arithmetic for 16-bit elements: they are computed in float32, and rounded once.
bool widens(const Tensor& x) { return is_half(x.dtype()) && !x.device().is_gpu(); }
Tensor wide(const Tensor& x) { return cast(x, DType::float32); }

Tensor result(const Shape& shape, const Tensor& like) {
  return empty(shape, {.dtype = like.dtype(), .device = like.device()});
}

Tensor mean_windows(const char* op, const Tensor& x, const PoolSizes& sizes, bool count_padding) {
  detail::check_floating(op, x);
  if (widens(x)) return cast(mean_windows(op, wide(x), sizes, count_padding), x.dtype());
  Tensor y = result(output_shape(x.shape(), sizes), x);
  if (y.numel() == 0) return y;
  const Tensor dense = contiguous(x);
  const OpScope scope(op, {&dense}, {&y});
  dispatch(x.device(), cpu::avg_pool, gpu::avg_pool,
           AvgPoolArgs{
               .x = dense.raw_data(),
               .y = y.raw_data(),
               .sizes = sizes,
               .count_padding = count_padding,
               .dtype = x.dtype(),
           });
  return y;
}

Tensor spread_windows(const char* op, const Tensor& grad, const Shape& x_shape,
                      const PoolSizes& sizes, bool count_padding) {
  detail::check_floating(op, grad);
  detail::check_shape(op, "grad", grad, output_shape(x_shape, sizes));
  if (widens(grad)) {
    return cast(spread_windows(op, wide(grad), x_shape, sizes, count_padding), grad.dtype());
  }
  Tensor dx = result(x_shape, grad);
  if (dx.numel() == 0) return dx;
  const Tensor dense = contiguous(grad);
  const OpScope scope(op, {&dense}, {&dx});
  dispatch(grad.device(), cpu::avg_pool_backward, gpu::avg_pool_backward,
           AvgPoolArgs{
               .x = dx.raw_data(),
               .y = dense.raw_data(),
               .sizes = sizes,
               .count_padding = count_padding,
               .dtype = grad.dtype(),
           });
  return dx;
}

}  // namespace

MaxPool max_pool2d(const Tensor& x, Size2d kernel, const MaxPoolOptions& options) {
  constexpr const char* kName = "max_pool2d";
  detail::check_floating(kName, x);
  const PoolSizes sizes = sizes_of(kName, x.shape(), kernel, options);
  if (widens(x)) {
    const MaxPool pooled = max_pool2d(wide(x), kernel, options);
    return {.y = cast(pooled.y, x.dtype()), .indices = pooled.indices};
  }
  const Shape shape = output_shape(x.shape(), sizes);
  const MaxPool pooled{.y = result(shape, x),
                       .indices = empty(shape, {.dtype = DType::int64, .device = x.device()})};
  if (pooled.y.numel() == 0) return pooled;
  const Tensor dense = contiguous(x);
  const OpScope scope(kName, {&dense}, {&pooled.y, &pooled.indices});
  dispatch(x.device(), cpu::max_pool, gpu::max_pool,
           MaxPoolArgs{
               .x = dense.raw_data(),
               .y = pooled.y.raw_data(),
               .indices = pooled.indices.data<std::int64_t>(),
               .sizes = sizes,
               .dtype = x.dtype(),
           });
  return pooled;
}

Tensor max_pool2d_backward(const Tensor& grad, const Tensor& indices, const Shape& x_shape,
                           Size2d kernel, const MaxPoolOptions& options) {
  constexpr const char* kName = "max_pool2d_backward";
  detail::check_floating(kName, grad);
  detail::check_same_device(kName, grad, indices);
  CAPSTAN_CHECK(indices.dtype() == DType::int64, DTypeError, kName, ": indices must be int64, got ",
                describe(indices));
  const PoolSizes sizes = sizes_of(kName, x_shape, kernel, options);
  detail::check_shape(kName, "grad", grad, output_shape(x_shape, sizes));
  detail::check_shape(kName, "indices", indices, grad.shape());
  if (widens(grad)) {
    return cast(max_pool2d_backward(wide(grad), indices, x_shape, kernel, options), grad.dtype());
  }
  Tensor dx = result(x_shape, grad);
  if (dx.numel() == 0) return dx;
  const Tensor dense = contiguous(grad);
  const Tensor dense_indices = contiguous(indices);
  const OpScope scope(kName, {&dense, &dense_indices}, {&dx});
  dispatch(grad.device(), cpu::max_pool_backward, gpu::max_pool_backward,
           MaxPoolBackwardArgs{
               .grad = dense.raw_data(),
               .indices = dense_indices.data<std::int64_t>(),
               .dx = dx.raw_data(),
               .sizes = sizes,
               .dtype = grad.dtype(),
           });
  return dx;
}

Tensor avg_pool2d(const Tensor& x, Size2d kernel, const AvgPoolOptions& options) {
  return mean_windows("avg_pool2d", x, sizes_of("avg_pool2d", x.shape(), kernel, options),
                      options.count_include_pad);
}

Tensor avg_pool2d_backward(const Tensor& grad, const Shape& x_shape, Size2d kernel,
                           const AvgPoolOptions& options) {
  constexpr const char* kName = "avg_pool2d_backward";
  return spread_windows(kName, grad, x_shape, sizes_of(kName, x_shape, kernel, options),
                        options.count_include_pad);
}

Tensor adaptive_avg_pool2d(const Tensor& x, Size2d output) {
  return mean_windows("adaptive_avg_pool2d", x, adaptive_sizes(x.shape(), output), false);
}

Tensor adaptive_avg_pool2d_backward(const Tensor& grad, const Shape& x_shape) {
  constexpr const char* kName = "adaptive_avg_pool2d_backward";
  check_shape_of_image(kName, grad.shape());
  return spread_windows(kName, grad, x_shape, adaptive_sizes(x_shape, {grad.size(2), grad.size(3)}),
                        false);
}

}  // namespace capstan::ops

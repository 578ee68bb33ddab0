#include "autograd/conv.h"

#include "autograd/autocast_policy.h"
#include "autograd/node.h"
#include "autograd/reduce.h"

// A convolution is linear in x and in the weight, and so are its two gradients in what they take:
// the three are one another's derivatives, to any order.
namespace capstan {

using autograd::autocast;
using autograd::autocasts;
using autograd::BackwardContext;
using autograd::CastTo;
using autograd::needs_grad;
using autograd::record;
using autograd::requires_grad;
using autograd::Saved;

namespace {

[[nodiscard]] Saved saved_if(bool wanted, const Tensor& tensor) {
  return wanted ? Saved(tensor) : Saved();
}

[[nodiscard]] Tensor input_gradient(const Tensor& grad, const Tensor& weight, const Shape& x_shape,
                                    const ops::ConvOptions& options);
[[nodiscard]] Tensor weight_gradient(const Tensor& grad, const Tensor& x, const Shape& weight_shape,
                                     const ops::ConvOptions& options);

[[nodiscard]] Tensor convolution(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                 const ops::ConvOptions& options) {
  Tensor y = ops::conv2d(x, weight, bias, options);
  if (needs_grad(x, weight, bias)) {
    record(y, "conv2d", {&x, &weight, &bias},
           [x = saved_if(requires_grad(weight), x), weight = saved_if(requires_grad(x), weight),
            x_shape = x.shape(), weight_shape = weight.shape(), options](BackwardContext& context) {
             const Tensor& g = context.grad();
             if (context.needs(0)) {
               context.set(0, input_gradient(g, weight.get(context), x_shape, options));
             }
             if (context.needs(1)) {
               context.set(1, weight_gradient(g, x.get(context), weight_shape, options));
             }
             if (context.needs(2)) context.set(2, sum(g, {0, 2, 3}));
           });
  }
  return y;
}

Tensor input_gradient(const Tensor& grad, const Tensor& weight, const Shape& x_shape,
                      const ops::ConvOptions& options) {
  Tensor dx = ops::conv2d_input_gradient(grad, weight, x_shape, options);
  if (needs_grad(grad, weight)) {
    record(dx, "conv2d_input_gradient", {&grad, &weight},
           [grad = saved_if(requires_grad(weight), grad),
            weight = saved_if(requires_grad(grad), weight), weight_shape = weight.shape(),
            options](BackwardContext& context) {
             const Tensor& g = context.grad();
             if (context.needs(0)) {
               context.set(0, convolution(g, weight.get(context), Tensor(), options));
             }
             if (context.needs(1)) {
               context.set(1, weight_gradient(grad.get(context), g, weight_shape, options));
             }
           });
  }
  return dx;
}

Tensor weight_gradient(const Tensor& grad, const Tensor& x, const Shape& weight_shape,
                       const ops::ConvOptions& options) {
  Tensor dweight = ops::conv2d_weight_gradient(grad, x, weight_shape, options);
  if (needs_grad(grad, x)) {
    record(dweight, "conv2d_weight_gradient", {&grad, &x},
           [grad = saved_if(requires_grad(x), grad), x = saved_if(requires_grad(grad), x),
            x_shape = x.shape(), options](BackwardContext& context) {
             const Tensor& g = context.grad();
             if (context.needs(0)) {
               context.set(0, convolution(x.get(context), g, Tensor(), options));
             }
             if (context.needs(1)) {
               context.set(1, input_gradient(grad.get(context), g, x_shape, options));
             }
           });
  }
  return dweight;
}

/// An axis with padding `same`: `padding` on both sides makes `surplus` outputs too many, at first.
struct SameAxis {
  std::int64_t padding, surplus;
};
[[nodiscard]] SameAxis same_axis(std::int64_t kernel, std::int64_t dilation) {
  const std::int64_t zeros = dilation * (kernel - 1);
  return {(zeros + 1) / 2, zeros % 2};
}

[[nodiscard]] Tensor same_convolution(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                      const Conv2dOptions& options) {
  CAPSTAN_CHECK(options.stride == Size2d(1), ValueError,
                "conv2d: padding `same` needs a stride of 1, got ", options.stride.height, " and ",
                options.stride.width, "; pass a padding in numbers");
  CAPSTAN_CHECK(weight.rank() == 4 && weight.numel() > 0, ShapeError,
                "conv2d: weight must be [out_channels, channels / groups, height, width], all at "
                "least 1, got shape ",
                weight.shape());
  const SameAxis height = same_axis(weight.size(2), options.dilation.height);
  const SameAxis width = same_axis(weight.size(3), options.dilation.width);
  Tensor y = convolution(x, weight, bias,
                         {.stride = 1,
                          .padding = {height.padding, width.padding},
                          .dilation = options.dilation,
                          .groups = options.groups});
  if (height.surplus != 0) y = y.slice(2, height.surplus, y.size(2));
  if (width.surplus != 0) y = y.slice(3, width.surplus, y.size(3));
  return y.contiguous();
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, Conv2dOptions options,
              Where where) {
  const CallSite site(where);
  if (autocasts(CastTo::lower, x, weight, bias)) [[unlikely]] {
    return conv2d(autocast(CastTo::lower, x), autocast(CastTo::lower, weight),
                  autocast(CastTo::lower, bias), options, where);
  }
  if (options.padding.is_same()) return same_convolution(x, weight, bias, options);
  return convolution(x, weight, bias,
                     {.stride = options.stride,
                      .padding = options.padding.size(),
                      .dilation = options.dilation,
                      .groups = options.groups});
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, Conv1dOptions options,
              Where where) {
  const CallSite site(where);
  CAPSTAN_CHECK(x.rank() == 3 && weight.rank() == 3, ShapeError,
                "conv1d: x must be [batch, channels, length] and weight [out_channels, channels / "
                "groups, kernel], got shapes ",
                x.shape(), " and ", weight.shape());
  const auto along = [](std::int64_t size, std::int64_t rest) { return Size2d{rest, size}; };
  // An image of height 1.
  return conv2d(x.unsqueeze(2), weight.unsqueeze(2), bias,
                {.stride = along(options.stride, 1),
                 .padding = options.same ? Padding2d::same() : Padding2d(0, options.padding),
                 .dilation = along(options.dilation, 1),
                 .groups = options.groups},
                where)
      .squeeze(2);
}

}  // namespace capstan

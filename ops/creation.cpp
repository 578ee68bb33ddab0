#include "ops/creation.h"

#include <cmath>

#include "framework/runtime/dispatch.h"
#include "framework/tensor/op_scope.h"
#include "framework/tensor/view.h"
#include "ops/checks.h"
#include "ops/elementwise.h"
#include "ops/kernels.h"

namespace capstan {
namespace {

void draw(const char* name, RandomOp op, const Tensor& y, double a, double b,
          const Generator& generator) {
  CAPSTAN_CHECK(generator.device() == y.device(), DeviceError, name, ": the generator is on ",
                generator.device(), ", got a tensor on ", y.device(),
                "; make a generator for that device");
  CAPSTAN_CHECK(y.is_contiguous(), ShapeError, name, ": needs a dense tensor, got shape ",
                y.shape(), " with strides ", y.strides(), "; fill a dense one and copy it");
  if (y.numel() == 0) return;
  const OpScope scope(name, {}, {&y});
  dispatch(y.device(), cpu::random, gpu::random,
           RandomArgs{
               .y = y.raw_data(),
               .numel = y.numel(),
               .op = op,
               .a = a,
               .b = b,
               .dtype = y.dtype(),
               .random = generator.reserve(y.numel()),
           });
}

Tensor draw_new(const char* name, RandomOp op, const Shape& shape, TensorOptions options, double a,
                double b, const Generator* generator) {
  Tensor y = empty(shape, options);
  ops::detail::check_floating(name, y);
  draw(name, op, y, a, b, generator != nullptr ? *generator : default_generator(options.device));
  return y;
}

}  // namespace

Tensor full(const Shape& shape, double value, TensorOptions options, Where where) {
  const CallSite site(where);
  ops::detail::check_representable("full", value, options.dtype);
  Tensor y = empty(shape, options);
  ops::fill(y, value);
  return y;
}

Tensor ones(const Shape& shape, TensorOptions options, Where where) {
  return full(shape, 1.0, options, where);
}

Tensor ones_like(const Tensor& other, Where where) {
  return full(other.shape(), 1.0, {.dtype = other.dtype(), .device = other.device()}, where);
}

Tensor arange(double start, double end, double step, TensorOptions options, Where where) {
  const CallSite site(where);
  CAPSTAN_CHECK(std::isfinite(start) && std::isfinite(end) && std::isfinite(step) && step != 0.0,
                ValueError, "arange: needs finite bounds and a step that is not 0, got start ",
                start, ", end ", end, ", step ", step);
  CAPSTAN_CHECK(options.dtype != DType::boolean, DTypeError,
                "arange: needs a numeric dtype, got bool");
  ops::detail::check_representable("arange", start, options.dtype);
  ops::detail::check_representable("arange", step, options.dtype);
  const double steps = std::ceil((end - start) / step);
  CAPSTAN_CHECK(steps < 9e15, ValueError, "arange: too many steps, got start ", start, ", end ",
                end, ", step ", step);
  const std::int64_t count = steps > 0.0 ? static_cast<std::int64_t>(steps) : 0;
  if (count > 0) {
    ops::detail::check_representable("arange", start + static_cast<double>(count - 1) * step,
                                     options.dtype);
  }
  Tensor y = empty({count}, options);
  if (count == 0) return y;
  const OpScope scope("arange", {}, {&y});
  dispatch(y.device(), cpu::arange, gpu::arange,
           ArangeArgs{
               .y = y.raw_data(),
               .numel = count,
               .dtype = options.dtype,
               .start = start,
               .step = step,
           });
  return y;
}

Tensor eye(std::int64_t size, TensorOptions options, Where where) {
  const CallSite site(where);
  Tensor y = empty({size, size}, options);
  if (size == 0) return y;
  ops::fill(y, 0.0);
  ops::fill(view::as_strided(y, {size}, {size + 1}, 0), 1.0);
  return y;
}

Tensor rand(const Shape& shape, TensorOptions options, const Generator* generator, Where where) {
  const CallSite site(where);
  return draw_new("rand", RandomOp::uniform, shape, options, 0.0, 1.0, generator);
}

Tensor randn(const Shape& shape, TensorOptions options, const Generator* generator, Where where) {
  const CallSite site(where);
  return draw_new("randn", RandomOp::normal, shape, options, 0.0, 1.0, generator);
}

namespace ops {

void uniform(const Tensor& y, double low, double high, const Generator& generator) {
  detail::check_floating("uniform", y);
  CAPSTAN_CHECK(low <= high, ValueError, "uniform: needs low <= high, got ", low, " and ", high);
  draw("uniform", RandomOp::uniform, y, low, high, generator);
}

void normal(const Tensor& y, double mean, double deviation, const Generator& generator) {
  detail::check_floating("normal", y);
  CAPSTAN_CHECK(deviation >= 0.0, ValueError, "normal: needs a deviation >= 0, got ", deviation);
  draw("normal", RandomOp::normal, y, mean, deviation, generator);
}

void bernoulli(const Tensor& y, double p, const Generator& generator) {
  CAPSTAN_CHECK(p >= 0.0 && p <= 1.0, ValueError, "bernoulli: needs p in [0, 1], got ", p);
  draw("bernoulli", RandomOp::bernoulli, y, p, 0.0, generator);
}

}  // namespace ops

}  // namespace capstan

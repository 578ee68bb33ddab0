#pragma once

#include "framework/random/generator.h"
#include "framework/tensor/factory.h"

namespace capstan {

[[nodiscard]] Tensor full(const Shape& shape, double value, TensorOptions options = {},
                          Where where = Where::current());
[[nodiscard]] Tensor ones(const Shape& shape, TensorOptions options = {},
                          Where where = Where::current());
[[nodiscard]] Tensor ones_like(const Tensor& other, Where where = Where::current());
/// start, start + step, ... before end.
[[nodiscard]] Tensor arange(double start, double end, double step = 1.0,
                            TensorOptions options = {.dtype = DType::int64},
                            Where where = Where::current());
[[nodiscard]] Tensor eye(std::int64_t size, TensorOptions options = {},
                         Where where = Where::current());
/// Uniform in [0, 1). Numbers come from `generator`, else from the device's default one.
[[nodiscard]] Tensor rand(const Shape& shape, TensorOptions options = {},
                          const Generator* generator = nullptr, Where where = Where::current());
/// Standard normal.
[[nodiscard]] Tensor randn(const Shape& shape, TensorOptions options = {},
                           const Generator* generator = nullptr, Where where = Where::current());

namespace ops {
/// Overwrite a dense `y`. @throws ValueError on low > high or deviation < 0 or p outside [0, 1].
void uniform(const Tensor& y, double low, double high, const Generator& generator);
void normal(const Tensor& y, double mean, double deviation, const Generator& generator);
void bernoulli(const Tensor& y, double p, const Generator& generator);
}  // namespace ops

}  // namespace capstan

#pragma once

#include "framework/random/generator.h"
#include "framework/tensor/tensor.h"

// Initialisers: overwrite a dense tensor in place, without recording. Fan-in is size(1) and fan-out
// size(0), each times the product of the further sizes. Numbers come from `generator`, else from
// the device's default one. @throws ShapeError unless rank >= 2 where fans are needed.
namespace capstan::nn::init {

enum class Fan : std::uint8_t { in, out };

void uniform_(const Tensor& x, double low = 0.0, double high = 1.0,
              const Generator* generator = nullptr, Where where = Where::current());
void normal_(const Tensor& x, double mean = 0.0, double deviation = 1.0,
             const Generator* generator = nullptr, Where where = Where::current());
void constant_(const Tensor& x, double value, Where where = Where::current());
void zeros_(const Tensor& x, Where where = Where::current());
void ones_(const Tensor& x, Where where = Where::current());

struct KaimingOptions {
  double negative_slope = 0.0;  ///< a of leaky ReLU: gain = sqrt(2 / (1 + a^2))
  Fan fan = Fan::in;
  const Generator* generator = nullptr;
};
/// Uniform in +-gain sqrt(3 / fan) (He et al. 2015).
void kaiming_uniform_(const Tensor& x, KaimingOptions options = {}, Where where = Where::current());
/// Normal with deviation gain / sqrt(fan).
void kaiming_normal_(const Tensor& x, KaimingOptions options = {}, Where where = Where::current());

/// Uniform in +-gain sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010).
void xavier_uniform_(const Tensor& x, double gain = 1.0, const Generator* generator = nullptr,
                     Where where = Where::current());
/// Normal with deviation gain sqrt(2 / (fan_in + fan_out)).
void xavier_normal_(const Tensor& x, double gain = 1.0, const Generator* generator = nullptr,
                    Where where = Where::current());

}  // namespace capstan::nn::init

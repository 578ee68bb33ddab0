#include "nn/init.h"

#include <cmath>

#include "ops/creation.h"
#include "ops/elementwise.h"

namespace capstan::nn::init {
namespace {

struct Fans {
  double in;
  double out;
};

Fans fans_of(const char* operation, const Tensor& x) {
  CAPSTAN_CHECK(x.rank() >= 2, ShapeError, operation,
                ": fan-in and fan-out need at least 2 axes, got shape ", x.shape());
  double receptive = 1.0;
  for (int axis = 2; axis < x.rank(); ++axis) receptive *= static_cast<double>(x.size(axis));
  return {.in = static_cast<double>(x.size(1)) * receptive,
          .out = static_cast<double>(x.size(0)) * receptive};
}

Generator generator_for(const Tensor& x, const Generator* generator) {
  return generator != nullptr ? *generator : default_generator(x.device());
}

/// Deviation of the values: gain / sqrt(fan).
double kaiming_deviation(const char* operation, const Tensor& x, const KaimingOptions& options) {
  const Fans fans = fans_of(operation, x);
  const double gain = std::sqrt(2.0 / (1.0 + options.negative_slope * options.negative_slope));
  return gain / std::sqrt(options.fan == Fan::in ? fans.in : fans.out);
}

double xavier_deviation(const char* operation, const Tensor& x, double gain) {
  const Fans fans = fans_of(operation, x);
  return gain * std::sqrt(2.0 / (fans.in + fans.out));
}

/// Uniform with mean 0: the bound is sqrt(3) deviations.
void centred_uniform(const Tensor& x, double deviation, const Generator* generator) {
  const double bound = std::sqrt(3.0) * deviation;
  ops::uniform(x, -bound, bound, generator_for(x, generator));
}

}  // namespace

void uniform_(const Tensor& x, double low, double high, const Generator* generator, Where where) {
  const CallSite site(where);
  ops::uniform(x, low, high, generator_for(x, generator));
}

void normal_(const Tensor& x, double mean, double deviation, const Generator* generator,
             Where where) {
  const CallSite site(where);
  ops::normal(x, mean, deviation, generator_for(x, generator));
}

void constant_(const Tensor& x, double value, Where where) {
  const CallSite site(where);
  ops::fill(x, value);
}

void zeros_(const Tensor& x, Where where) { constant_(x, 0.0, where); }

void ones_(const Tensor& x, Where where) { constant_(x, 1.0, where); }

void kaiming_uniform_(const Tensor& x, KaimingOptions options, Where where) {
  const CallSite site(where);
  const double deviation = kaiming_deviation("kaiming_uniform", x, options);
  if (x.numel() > 0) centred_uniform(x, deviation, options.generator);
}

void kaiming_normal_(const Tensor& x, KaimingOptions options, Where where) {
  const CallSite site(where);
  const double deviation = kaiming_deviation("kaiming_normal", x, options);
  if (x.numel() > 0) ops::normal(x, 0.0, deviation, generator_for(x, options.generator));
}

void xavier_uniform_(const Tensor& x, double gain, const Generator* generator, Where where) {
  const CallSite site(where);
  const double deviation = xavier_deviation("xavier_uniform", x, gain);
  if (x.numel() > 0) centred_uniform(x, deviation, generator);
}

void xavier_normal_(const Tensor& x, double gain, const Generator* generator, Where where) {
  const CallSite site(where);
  const double deviation = xavier_deviation("xavier_normal", x, gain);
  if (x.numel() > 0) ops::normal(x, 0.0, deviation, generator_for(x, generator));
}

}  // namespace capstan::nn::init

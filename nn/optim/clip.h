#pragma once

#include <vector>

#include "framework/tensor/tensor.h"

// Clipping of gradients, in place, between backward and step. Parameters without a gradient are
// left out. Nothing is read on the host, so captures may contain it and replays follow the
// gradients. Not recorded for backward.
namespace capstan::nn {

struct ClipNormOptions {
  /// The p of the p-norm: positive, or infinity for the largest absolute value.
  double norm_type = 2.0;
  /// Refuse a norm that is not finite. This waits for the device.
  bool error_if_nonfinite = false;
};

/// Multiplies all gradients by min(1, max_norm / (norm + 1e-6)), where `norm` is that of all of
/// them taken as one vector, computed in float32, in float64 where one is. Returns the norm as it
/// was before, a scalar on their device; 0 (float32, on the CPU) if there are none.
/// @throws ValueError on a negative max_norm, a norm_type that is not positive, or a norm that is
///   not finite under error_if_nonfinite, nothing having changed; DeviceError unless all gradients
///   are on one device; CaptureError under error_if_nonfinite while capturing.
Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                       ClipNormOptions options = {}, Where where = Where::current());
/// Limits every element of every gradient to [-clip_value, clip_value]. NaN stays.
/// @throws ValueError  if clip_value is negative or NaN.
void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value,
                      Where where = Where::current());

}  // namespace capstan::nn

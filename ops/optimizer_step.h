#pragma once

#include <vector>

#include "framework/tensor/tensor.h"

namespace capstan::ops {

/// What one parameter brings to a step; all dense, of one dtype (f32 or f64) and device.
struct ParameterSlot {
  Tensor parameter;
  Tensor grad;
  Tensor state1;  ///< momentum or first moment, may be undefined for SGD
  Tensor state2;  ///< second moment
};

/// One SGD step over all parameters in one kernel. `hyper` is float64 {lr, momentum, weight_decay}
/// and `step` an int64 scalar, both on the parameters' device: a captured step reads their values
/// at replay. Adds 1 to `step`. See SgdArgs for the rule.
void sgd_step(const std::vector<ParameterSlot>& slots, const Tensor& hyper, const Tensor& step,
              bool nesterov, bool maximize);
/// One Adam (or, with `decoupled`, AdamW) step; `hyper` is {lr, beta1, beta2, eps, weight_decay}.
/// See AdamArgs for the rule (Kingma and Ba 2015; Loshchilov and Hutter 2019).
void adam_step(const std::vector<ParameterSlot>& slots, const Tensor& hyper, const Tensor& step,
               bool decoupled, bool maximize);

}  // namespace capstan::ops

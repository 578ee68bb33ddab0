#pragma once

#include <vector>

#include "framework/tensor/tensor.h"

namespace capstan::ops {

/// What one parameter brings to a step; all dense, of one dtype (f32 or f64) and device.
struct ParameterSlot {
  Tensor parameter;
  Tensor grad;
  Tensor state1{};  ///< what the rule keeps, see its arguments in ops/kernels.h; some may be
  Tensor state2{};  ///< undefined
  Tensor state3{};
};

struct StepControl {
  bool counts = true;  ///< add 1 to the step count: for the last of several groups only
  Tensor skip{};       ///< undefined, or a float32 scalar: if not 0, nothing changes
};

/// One SGD step over all parameters in one kernel. `hyper` is float64 {lr, momentum, weight_decay,
/// dampening} and `step` an int64 scalar, both on the parameters' device, where `control.skip` is
/// too: a captured step reads their values at replay. See SgdArgs for the rule.
void sgd_step(const std::vector<ParameterSlot>& slots, const Tensor& hyper, const Tensor& step,
              bool nesterov, bool maximize, const StepControl& control = {});
/// One Adam (or, with `decoupled`, AdamW) step; `hyper` is {lr, beta1, beta2, eps, weight_decay}.
/// See AdamArgs for the rule (Kingma and Ba 2015; Loshchilov and Hutter 2019; Reddi et al. 2018).
void adam_step(const std::vector<ParameterSlot>& slots, const Tensor& hyper, const Tensor& step,
               bool decoupled, bool maximize, const StepControl& control = {});
/// Hinton 2012; `hyper` is {lr, alpha, eps, weight_decay, momentum}. See RmspropArgs.
void rmsprop_step(const std::vector<ParameterSlot>& slots, const Tensor& hyper, const Tensor& step,
                  bool maximize, const StepControl& control = {});
/// Duchi et al. 2011; `hyper` is {lr, lr_decay, weight_decay, eps}. See AdagradArgs.
void adagrad_step(const std::vector<ParameterSlot>& slots, const Tensor& hyper, const Tensor& step,
                  bool maximize, const StepControl& control = {});
/// Chen et al. 2023; `hyper` is {lr, beta1, beta2, weight_decay}. See LionArgs.
void lion_step(const std::vector<ParameterSlot>& slots, const Tensor& hyper, const Tensor& step,
               bool maximize, const StepControl& control = {});

}  // namespace capstan::ops

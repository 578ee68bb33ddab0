#pragma once

#include <string>
#include <utility>
#include <vector>

#include "framework/tensor/tensor.h"

namespace capstan::nn {

/// Names and tensors in registration order; tensors share memory with their owner.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using StateDict = NamedTensors;

/// Copies values of `state` into the `targets` of the same names, in place, across devices.
/// Everything is checked before the first copy. `operation` is for messages. @throws ValueError
/// listing missing and unexpected names (if `strict`), or on a name given twice; ShapeError,
/// DTypeError naming the tensor; CaptureError while capturing.
void copy_state(const char* operation, const NamedTensors& targets, const StateDict& state,
                bool strict);

}  // namespace capstan::nn

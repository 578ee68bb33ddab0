#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "framework/runtime/recording.h"
#include "framework/tensor/tensor.h"

namespace capstan {

/// A recorded function sees copies of its inputs, so what it writes there would be lost: throws
/// CaptureError at the line of the first operation of `recording` that writes one of `inputs`.
/// `label` names an input.
void refuse_written_inputs(const std::string& callable, const Recording& recording,
                           std::span<const Tensor> inputs,
                           const std::function<std::string(std::size_t)>& label);

}  // namespace capstan

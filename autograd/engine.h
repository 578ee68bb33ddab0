#pragma once

#include <vector>

#include "framework/tensor/tensor.h"

namespace capstan {

/// Accumulates d(sum_i outputs_i . gradients_i)/d(leaf) into `grad` of every leaf. Runs on the
/// calling thread, nodes in descending order of their forward (deterministic), each on the stream
/// of its forward; while the current stream captures, everything runs on it. The current stream is
/// ordered after all of it. Saved values are dropped as they are used, unless the graph is
/// retained. A `grad` that exists is added to in place, unless the gradients have a history.
/// @throws GradError  if an output has no history; if an output of several elements has no
/// gradient;
///   if a graph is used a second time without retain_graph; if a saved tensor was changed in place;
///   if a backward or a hook returns what does not fit. ShapeError, DTypeError, DeviceError unless
///   each gradient matches its output. `grad`s are unchanged then.
void backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& gradients = {},
              BackwardOptions options = {}, Where where = Where::current());

struct GradOptions {
  bool retain_graph = false;
  bool create_graph = false;  ///< implies retain_graph
  bool allow_unused = false;  ///< an input without influence gets an undefined tensor, not an error
};

/// Gradients of sum_i outputs_i . grad_outputs_i with respect to `inputs` (leaves or not), without
/// touching any `grad`; nothing runs that leads to none of them. The results are nobody else's
/// memory. `grad_outputs` may be empty if every output has one element.
/// @throws GradError  as `backward`, and naming the position of an unused input.
[[nodiscard]] std::vector<Tensor> grad(const std::vector<Tensor>& outputs,
                                       const std::vector<Tensor>& inputs,
                                       const std::vector<Tensor>& grad_outputs = {},
                                       GradOptions options = {}, Where where = Where::current());

}  // namespace capstan

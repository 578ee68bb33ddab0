#pragma once

#include <functional>
#include <vector>

#include "framework/random/generator.h"
#include "framework/tensor/tensor.h"

namespace capstan {

struct CheckpointOptions {
  bool preserve_rng_state = true;  ///< draw the same numbers again
  /// Generators that the function draws from, beside the default ones of the inputs' devices.
  std::vector<Generator> generators{};
};

/// `function(inputs)`, keeping the inputs alone for backward, which calls `function` again: less
/// memory for more time. Gradients, also of higher order, go to the inputs and to every leaf that
/// the function reaches by itself (parameters), as without it. The generators are where the first
/// call left them afterwards. `function` must do the same each time and leave its inputs as they
/// are; it is kept until backward is over. Outputs that require no gradient inside require none
/// outside. Within a capture the second call becomes part of it.
/// @throws GradError  if `function` uses a tensor with a history from before that is no input, if
/// it
///   returns something else at the second call (then from backward), or an undefined tensor.
[[nodiscard]] std::vector<Tensor> checkpoint(
    std::function<std::vector<Tensor>(const std::vector<Tensor>&)> function,
    const std::vector<Tensor>& inputs, CheckpointOptions options = {},
    Where where = Where::current());
[[nodiscard]] Tensor checkpoint(std::function<Tensor(const Tensor&)> function, const Tensor& input,
                                CheckpointOptions options = {}, Where where = Where::current());

}  // namespace capstan

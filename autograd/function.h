#pragma once

#include <any>
#include <memory>
#include <vector>

#include "autograd/node.h"

namespace capstan {

/// What `forward` of a custom function leaves for its `backward`.
class FunctionContext {
 public:
  /// Keeps inputs or outputs; checked against later writes. Call in forward, once. Derivatives of
  /// the backward do not see through other tensors.
  void save_for_backward(std::vector<Tensor> tensors);
  /// @throws GradError if one was changed since, or after the graph was released.
  [[nodiscard]] std::vector<Tensor> saved() const;
  /// Anything else.
  std::any data;
  /// Backward results are not differentiable again: asking for it is a GradError.
  void mark_once_differentiable();
  /// These outputs carry no gradient.
  void mark_non_differentiable(const std::vector<Tensor>& outputs);
  /// In backward: whether the gradient of input `index` is used.
  [[nodiscard]] bool needs(std::size_t index) const;

 private:
  friend class CustomNode;
  friend std::vector<Tensor> apply_custom(struct CustomFunction, const std::vector<Tensor>&,
                                          const Where&);
  struct State;
  std::shared_ptr<State> state_;
};

/// Forward and backward of a custom function; see `Function`.
struct CustomFunction {
  const char* name;
  std::vector<Tensor> (*forward)(FunctionContext&, const std::vector<Tensor>&);
  std::vector<Tensor> (*backward)(FunctionContext&, const std::vector<Tensor>&);
};
[[nodiscard]] std::vector<Tensor> apply_custom(CustomFunction function,
                                               const std::vector<Tensor>& inputs,
                                               const Where& where);

/// Base of a user's own differentiable function:
///
///     struct Cube : Function<Cube> {
///       static constexpr const char* name = "cube";
///       static std::vector<Tensor> forward(FunctionContext& context,
///                                          const std::vector<Tensor>& inputs);
///       static std::vector<Tensor> backward(FunctionContext& context,
///                                           const std::vector<Tensor>& grads);
///     };
///     Tensor y = Cube::apply({x})[0];
///
/// `forward` runs without recording, and may return an input as it is; `backward` gets one gradient
/// per output (zeros where none came in) and returns one per input (undefined where there is none);
/// it is recorded under create_graph.
template <typename Derived>
struct Function {
  [[nodiscard]] static std::vector<Tensor> apply(const std::vector<Tensor>& inputs,
                                                 Where where = Where::current()) {
    return apply_custom({Derived::name, &Derived::forward, &Derived::backward}, inputs, where);
  }
};

}  // namespace capstan

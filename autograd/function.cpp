#include "autograd/function.h"

#include <algorithm>

#include "autograd/autocast.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/view.h"

namespace capstan {

struct FunctionContext::State {
  /// Until forward is over nobody knows which tensors are outputs.
  struct Kept {
    Tensor tensor;
    std::int64_t version;
  };
  std::vector<Kept> kept;
  std::vector<autograd::Saved> saved;
  std::vector<Tensor> non_differentiable;
  bool once_differentiable = false;
};

namespace {

/// The custom backward that runs on this thread, innermost.
constinit thread_local const autograd::BackwardContext* running = nullptr;

class [[nodiscard]] RunningScope {
 public:
  explicit RunningScope(const autograd::BackwardContext& context) noexcept
      : outer_(std::exchange(running, &context)) {}
  ~RunningScope() { running = outer_; }
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  const autograd::BackwardContext* outer_;
};

bool contains(const std::vector<Tensor>& tensors, const Tensor& tensor) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const Tensor& other) { return other.is_same(tensor); });
}

}  // namespace

/// The recorded call of a custom function.
class CustomNode final : public autograd::Node {
 public:
  CustomNode(const CustomFunction& function, FunctionContext context,
             const std::vector<Tensor>& inputs, const std::vector<Tensor>& results)
      : Node(function.name, results.front().device(), static_cast<std::uint32_t>(results.size())),
        backward_(function.backward),
        context_(std::move(context)) {
    edges_.reserve(inputs.size());
    for (const Tensor& input : inputs) edges_.push_back(autograd::edge_of(input));
    for (std::uint32_t i = 0; i < results.size(); ++i) describe_output(i, results[i]);
    save(inputs, results);
  }

  [[nodiscard]] std::span<autograd::Edge> edges() noexcept override { return edges_; }

  void backward(autograd::BackwardContext& context) override {
    CAPSTAN_CHECK(!grad_enabled() || !context_.state_->once_differentiable, GradError,
                  "backward of ", name,
                  ": it is marked once differentiable, so create_graph must be false");
    std::vector<Tensor> grads;
    grads.reserve(outputs);
    for (std::uint32_t i = 0; i < outputs; ++i) {
      const Tensor& grad = context.grad(i);
      const autograd::OutputMeta& meta = output(i);
      grads.push_back(
          grad.defined() ? grad : zeros(meta.shape, {.dtype = meta.dtype, .device = meta.device}));
    }
    const RunningScope scope(context);
    const capstan::detail::AutocastModesGuard autocast(modes_);
    std::vector<Tensor> results = backward_(context_, grads);
    CAPSTAN_CHECK(results.size() == edges_.size(), GradError, "backward of ", name, ": returned ",
                  results.size(), " gradients for ", edges_.size(), " inputs");
    for (std::size_t i = 0; i < results.size(); ++i) {
      context.set(i, in_dtype_of(edges_[i], std::move(results[i])));
    }
  }

  void release_saved() override {
    context_.state_->saved.clear();
    context_.data.reset();
  }

 private:
  /// Autocast may have chosen another floating dtype than that of the input.
  [[nodiscard]] static Tensor in_dtype_of(const autograd::Edge& edge, Tensor grad) {
    if (!edge.node || !grad.defined() || !is_floating(grad.dtype())) return grad;
    return grad.to(edge.node->output(edge.output).dtype);
  }

  void save(const std::vector<Tensor>& inputs, const std::vector<Tensor>& results) {
    FunctionContext::State& state = *context_.state_;
    state.saved.reserve(state.kept.size());
    for (std::size_t i = 0; i < state.kept.size(); ++i) {
      const auto& [tensor, version] = state.kept[i];
      CAPSTAN_CHECK(!tensor.defined() || tensor.storage()->version() == version, GradError, name,
                    ": tensor ", i, " was changed in place after save_for_backward");
      const auto result = std::find_if(results.begin(), results.end(), [&](const Tensor& other) {
        return tensor.defined() && other.is_same(tensor);
      });
      if (result == results.end() || contains(inputs, tensor)) {
        state.saved.emplace_back(tensor);
      } else {
        state.saved.push_back(
            autograd::Saved::output(tensor, static_cast<std::uint32_t>(result - results.begin())));
      }
    }
    state.kept.clear();
  }

  std::vector<Tensor> (*const backward_)(FunctionContext&, const std::vector<Tensor>&);
  FunctionContext context_;
  std::vector<autograd::Edge> edges_;
  const capstan::detail::AutocastModes modes_ = capstan::detail::autocast_modes;
};

void FunctionContext::save_for_backward(std::vector<Tensor> tensors) {
  CAPSTAN_CHECK(state_->kept.empty(), StateError,
                "save_for_backward: was already called in this forward; pass all tensors at once");
  for (Tensor& tensor : tensors) {
    const std::int64_t version = tensor.defined() ? tensor.storage()->version() : 0;
    state_->kept.push_back({std::move(tensor), version});
  }
}

std::vector<Tensor> FunctionContext::saved() const {
  CAPSTAN_CHECK(running != nullptr, StateError,
                "saved: only the backward of a custom function can ask for its tensors");
  std::vector<Tensor> tensors;
  tensors.reserve(state_->saved.size());
  for (const autograd::Saved& saved : state_->saved) tensors.push_back(saved.get(*running));
  return tensors;
}

void FunctionContext::mark_once_differentiable() { state_->once_differentiable = true; }

void FunctionContext::mark_non_differentiable(const std::vector<Tensor>& outputs) {
  state_->non_differentiable = outputs;
}

bool FunctionContext::needs(std::size_t index) const {
  CAPSTAN_CHECK(running != nullptr, StateError,
                "needs: only the backward of a custom function can ask which gradients are used");
  return running->needs(index);
}

std::vector<Tensor> apply_custom(CustomFunction function, const std::vector<Tensor>& inputs,
                                 const Where& where) {
  const CallSite site(where);
  FunctionContext context;
  context.state_ = std::make_shared<FunctionContext::State>();
  std::vector<Tensor> outputs;
  {
    const NoGradGuard guard;
    outputs = function.forward(context, inputs);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    CAPSTAN_CHECK(outputs[i].defined(), GradError, function.name,
                  ": forward returned an undefined ", "output ", i);
  }
  const bool recorded = grad_enabled() && !outputs.empty() &&
                        std::any_of(inputs.begin(), inputs.end(), [](const Tensor& input) {
                          return autograd::requires_grad(input);
                        });
  if (!recorded) return outputs;

  const std::vector<Tensor> marked = std::exchange(context.state_->non_differentiable, {});
  const auto node = make_ref<CustomNode>(function, std::move(context), inputs, outputs);
  for (std::uint32_t i = 0; i < outputs.size(); ++i) {
    Tensor& output = outputs[i];
    const bool differentiable = is_floating(output.dtype()) && !contains(marked, output);
    // An input that was handed through, or an output returned twice, has a history of its own.
    if (output.impl()->grad_slot || contains(inputs, output)) {
      output = view::alias(output);
      output.impl()->is_view = true;
    }
    if (differentiable) autograd::detail::attach(output, node, i);
  }
  return outputs;
}

}  // namespace capstan

#include "autograd/checkpoint.h"

#include <algorithm>
#include <utility>

#include "autograd/autocast.h"
#include "autograd/engine_edges.h"
#include "autograd/node.h"
#include "framework/core/error.h"
#include "framework/tensor/view.h"

namespace capstan {
namespace autograd {
namespace {

using Tensors = std::vector<Tensor>;
using Body = std::function<Tensors(const Tensors&)>;

/// Where generators stand.
class GeneratorStates {
 public:
  explicit GeneratorStates(const std::vector<Generator>& generators) {
    for (const Generator& generator : generators) {
      states_.emplace_back(generator, generator.state());
    }
  }
  void restore() const {
    for (const auto& [generator, state] : states_) generator.set_state(state);
  }

 private:
  std::vector<std::pair<Generator, GeneratorState>> states_;
};

/// Keeps a pass within the function: as long as it is closed, an input has no history.
class InputNode final : public Node {
 public:
  InputNode(const Tensor& input, Edge origin)
      : Node("checkpoint input", input.device(), 1), origin_(std::move(origin)) {}
  [[nodiscard]] std::span<Edge> edges() noexcept override {
    return open_ ? std::span<Edge>(&origin_, 1) : std::span<Edge>();
  }
  void backward(BackwardContext& context) override {
    if (open_) context.set(0, context.grad());
  }
  void release_saved() override {}
  void open() noexcept { open_ = true; }

 private:
  Edge origin_;
  bool open_ = false;
};

/// What the function is called with.
struct InnerInputs {
  Tensors tensors;
  std::vector<Ref<InputNode>> nodes;  // null where none is needed

  void add(const Tensor& input, const Edge& origin) {
    tensors.push_back(input.defined() ? view::alias(input) : Tensor());
    nodes.emplace_back();
    if (!input.defined()) return;
    tensors.back().impl()->is_view = true;
    if (!origin.node) return;
    nodes.back() = make_ref<InputNode>(input, origin);
    detail::attach(tensors.back(), nodes.back(), 0);
  }
};

void check_defined(const Tensors& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    CAPSTAN_CHECK(outputs[i].defined(), GradError,
                  "checkpoint: the function returned an undefined ", "output ", i);
  }
}

class CheckpointNode final : public Node {
 public:
  CheckpointNode(Body body, std::vector<Generator> generators, GeneratorStates states,
                 const Tensors& inputs, const Tensors& results,
                 const std::vector<Ref<LeafNode>>& leaves)
      : Node("checkpoint", results.front().device(), static_cast<std::uint32_t>(results.size())),
        body_(std::move(body)),
        generators_(std::move(generators)),
        states_(std::move(states)),
        modes_(capstan::detail::autocast_modes) {
    for (const Tensor& input : inputs) {
      edges_.push_back(edge_of(input));
      saved_.push_back(input.defined() ? Saved(input) : Saved());
    }
    for (const Ref<LeafNode>& leaf : leaves) edges_.push_back({leaf, 0});
    for (std::uint32_t i = 0; i < outputs; ++i) describe_output(i, results[i]);
  }

  [[nodiscard]] std::span<Edge> edges() noexcept override { return edges_; }

  void backward(BackwardContext& context) override {
    const bool create_graph = grad_enabled();
    InnerInputs inner;
    for (std::size_t i = 0; i < saved_.size(); ++i) {
      inner.add(saved_[i].defined() ? saved_[i].get(context) : Tensor(), edges_[i]);
    }
    const Tensors results = run_again(inner.tensors);

    Tensors reached;
    Tensors grads;
    for (std::uint32_t i = 0; i < outputs; ++i) {
      if (!context.grad(i).defined() || !requires_grad(results[i])) continue;
      reached.push_back(results[i]);
      grads.push_back(context.grad(i));
    }
    if (reached.empty()) return;
    std::vector<Edge> targets(edges_.size());
    for (std::size_t i = 0; i < edges_.size(); ++i) {
      if (!edges_[i].node || !context.needs(i)) continue;
      targets[i] = i < inner.nodes.size() ? Edge{inner.nodes[i], 0} : edges_[i];
    }
    // The hooks of leaves run where the gradient is complete: in the pass that this one is part of.
    Tensors input_grads = grad_edges(reached, targets, grads,
                                     {.create_graph = create_graph, .allow_unused = true}, false);
    for (const Ref<InputNode>& node : inner.nodes) {
      if (node) node->open();
    }
    for (std::size_t i = 0; i < input_grads.size(); ++i) {
      context.set(i, std::move(input_grads[i]));
    }
  }

  void release_saved() override {
    saved_.clear();
    body_ = nullptr;
    generators_.clear();
  }

 private:
  [[nodiscard]] Tensors run_again(const Tensors& inputs) const {
    const GradMode recording(true);
    const capstan::detail::AutocastModesGuard as_before(modes_);
    const GeneratorStates now(generators_);
    Tensors results;
    try {
      states_.restore();
      results = body_(inputs);
    } catch (...) {
      now.restore();
      throw;
    }
    now.restore();
    check_defined(results);
    CAPSTAN_CHECK(results.size() == outputs, GradError, "checkpoint: the function returned ",
                  results.size(), " outputs in backward and ", outputs,
                  " before; it must do the same each time");
    for (std::uint32_t i = 0; i < outputs; ++i) {
      const OutputMeta& before = output(i);
      CAPSTAN_CHECK(results[i].shape() == before.shape && results[i].dtype() == before.dtype &&
                        results[i].device() == before.device,
                    GradError, "checkpoint: output ", i, " of the function is ",
                    describe(results[i]), " in backward and was ", before.dtype, before.shape,
                    " on ", before.device, " before; it must do the same each time");
    }
    return results;
  }

  Body body_;
  std::vector<Generator> generators_;
  const GeneratorStates states_;
  const capstan::detail::AutocastModes modes_;
  std::vector<Saved> saved_;
  std::vector<Edge> edges_;
};

std::vector<Generator> generators_of(const Tensors& inputs, CheckpointOptions& options) {
  if (!options.preserve_rng_state) return {};
  std::vector<Device> devices;
  for (const Tensor& input : inputs) {
    if (!input.defined()) continue;
    if (std::find(devices.begin(), devices.end(), input.device()) != devices.end()) continue;
    devices.push_back(input.device());
    options.generators.push_back(default_generator(input.device()));
  }
  return std::move(options.generators);
}

}  // namespace
}  // namespace autograd

std::vector<Tensor> checkpoint(
    std::function<std::vector<Tensor>(const std::vector<Tensor>&)> function,
    const std::vector<Tensor>& inputs, CheckpointOptions options, Where where) {
  using namespace autograd;
  const CallSite site(where);
  if (!grad_enabled()) return function(inputs);

  std::vector<Generator> generators = generators_of(inputs, options);
  GeneratorStates states(generators);
  // Conversions kept from before would be a history from before.
  const capstan::detail::AutocastModesGuard uncached(capstan::detail::uncached_autocast_modes());
  const std::uint64_t oldest = Node::next_sequence();
  InnerInputs inner;
  for (const Tensor& input : inputs) inner.add(input, edge_of(input));
  std::vector<Tensor> results = function(inner.tensors);
  check_defined(results);
  const std::vector<Ref<LeafNode>> leaves = reachable_leaves(results, oldest, "checkpoint");

  std::vector<Tensor> outputs;
  for (const Tensor& result : results) {
    outputs.push_back(result.detach());
    outputs.back().impl()->is_view = result.impl()->is_view;
  }
  if (std::none_of(results.begin(), results.end(),
                   [](const Tensor& result) { return requires_grad(result); })) {
    return outputs;
  }
  const auto node = make_ref<CheckpointNode>(std::move(function), std::move(generators),
                                             std::move(states), inputs, results, leaves);
  for (std::uint32_t i = 0; i < outputs.size(); ++i) {
    if (requires_grad(results[i])) autograd::detail::attach(outputs[i], node, i);
  }
  return outputs;
}

Tensor checkpoint(std::function<Tensor(const Tensor&)> function, const Tensor& input,
                  CheckpointOptions options, Where where) {
  return checkpoint(
             [function = std::move(function)](const std::vector<Tensor>& inputs) {
               return std::vector<Tensor>{function(inputs.front())};
             },
             std::vector<Tensor>{input}, std::move(options), where)
      .front();
}

}  // namespace capstan

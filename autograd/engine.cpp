#include "autograd/engine.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "autograd/arithmetic.h"
#include "autograd/autocast.h"
#include "autograd/engine_edges.h"
#include "autograd/node.h"
#include "autograd/pass_arena.h"
#include "autograd/side_streams.h"
#include "ops/creation.h"
#include "ops/elementwise.h"

namespace capstan {
namespace autograd {
namespace {

/// Where backward starts.
struct Root {
  Edge edge;
  Tensor grad;
};

void add_into(Tensor& sum, Tensor grad) {
  if (grad_enabled()) {
    sum = add(sum, grad);
  } else if (is_exclusive(sum)) {
    ops::binary_out(BinaryOp::add, sum, grad, sum);
  } else if (is_exclusive(grad)) {
    ops::binary_out(BinaryOp::add, sum, grad, grad);
    sum = std::move(grad);
  } else {
    sum = ops::binary(BinaryOp::add, sum, grad);
  }
}

void check_usable(const char* operation, const Node& node) {
  if (!node.released) [[likely]]
    return;
  CAPSTAN_CHECK(!node.is_leaf(), GradError, operation,
                ": a leaf was given another shape or device by set_data since the forward; run the "
                "forward again");
  throw GradError(capstan::detail::concat(
      operation, ": the graph was already used, and ", node.name, " (recorded at ",
      node.where.file_name(), ":", node.where.line(),
      ") dropped its saved values; pass retain_graph = true to the first backward"));
}

void check_returned(const Node& node, std::size_t input, const Tensor& grad, const Edge& edge) {
  const OutputMeta& want = edge.node->output(edge.output);
  CAPSTAN_CHECK(grad.shape() == want.shape, GradError, "backward of ", node.name,
                ": the gradient of input ", input, " has shape ", grad.shape(), ", the input has ",
                want.shape);
  CAPSTAN_CHECK(grad.dtype() == want.dtype && grad.device() == want.device, GradError,
                "backward of ", node.name, ": the gradient of input ", input, " is ",
                describe(grad), ", the input is ", want.dtype, " on ", want.device);
}

class Pass {
 public:
  Pass(const char* operation, bool retain_graph, bool create_graph)
      : operation_(operation), retain_(retain_graph || create_graph), recording_(create_graph) {}

  /// Gradients go to these edges instead of to leaves, and nothing runs in vain. Edges that no root
  /// leads to are left without a gradient; returns the position of the first of them.
  std::optional<std::size_t> restrict_to(const std::vector<Root>& roots, std::vector<Edge> targets);
  /// Leaves keep their gradient as it is.
  void skip_leaf_hooks() noexcept { leaf_hooks_ = false; }
  void run(std::vector<Root> roots);
  /// The end of `backward`.
  void accumulate();
  /// The end of `grad`; undefined where nothing arrived.
  [[nodiscard]] std::vector<Tensor> take_results();

 private:
  struct LeafGrad {
    LeafNode* leaf;
    Tensor grad;
  };
  struct RetainedGrad {
    std::shared_ptr<Tensor> place;
    Tensor grad;
  };

  [[nodiscard]] bool leads_to_target(const Edge& edge) {
    const PassEntry* entry = edge.node ? arena_.find(*edge.node) : nullptr;
    return entry != nullptr && (entry->runs || entry->captured);
  }
  void visit(std::uint32_t index);
  void run_hooks(Node& node, std::span<Tensor> grads);
  void run_backward(Node& node, std::span<Tensor> grads);
  void deliver(const Edge& edge, Tensor grad, StreamState& from);
  /// `grad` or, if others see it too, a copy.
  [[nodiscard]] Tensor own(Tensor& grad) const;

  const char* const operation_;
  const bool retain_;
  const GradMode recording_;
  bool restricted_ = false;
  bool leaf_hooks_ = true;
  std::vector<Root> roots_;
  ArenaLease lease_;
  PassArena& arena_ = *lease_;
  std::vector<LeafGrad> leaves_;
  std::vector<RetainedGrad> retained_;
  std::vector<Edge> targets_;
  std::vector<Tensor> results_;
  SideStreams side_streams_;
};

std::optional<std::size_t> Pass::restrict_to(const std::vector<Root>& roots,
                                             std::vector<Edge> targets) {
  restricted_ = true;
  targets_ = std::move(targets);
  results_.resize(targets_.size());

  std::uint64_t oldest = ~std::uint64_t{0};
  for (const Edge& target : targets_) {
    if (target.node) oldest = std::min(oldest, target.node->sequence);
  }
  std::vector<std::uint32_t> pending;
  const auto reach = [&](const Edge& edge) {
    if (!edge.node || edge.node->sequence < oldest) return;
    const auto [entry, added] = arena_.find_or_add(*edge.node);
    if (!added) return;
    arena_.entries[entry].runs = false;
    pending.push_back(entry);
  };
  for (const Root& root : roots) reach(root.edge);
  while (!pending.empty()) {
    Node& node = *arena_.entries[pending.back()].node;
    pending.pop_back();
    for (const Edge& edge : node.edges()) reach(edge);
  }

  std::optional<std::size_t> unreached;
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    PassEntry* entry = targets_[i].node ? arena_.find(*targets_[i].node) : nullptr;
    if (entry != nullptr) {
      entry->captured = true;
    } else if (!unreached) {
      unreached = i;
    }
  }

  std::vector<std::uint32_t> by_age(arena_.entries.size());
  std::iota(by_age.begin(), by_age.end(), 0u);
  std::sort(by_age.begin(), by_age.end(), [&](std::uint32_t a, std::uint32_t b) {
    return arena_.entries[a].node->sequence < arena_.entries[b].node->sequence;
  });
  for (const std::uint32_t index : by_age) {
    PassEntry& entry = arena_.entries[index];
    const std::span<Edge> edges = entry.node->edges();
    entry.runs = std::any_of(edges.begin(), edges.end(),
                             [&](const Edge& edge) { return leads_to_target(edge); });
  }
  return unreached;
}

void Pass::run(std::vector<Root> roots) {
  roots_ = std::move(roots);
  for (Root& root : roots_) {
    StreamState& from = capstan::detail::current_stream_state(root.grad.device());
    deliver(root.edge, std::move(root.grad), from);
  }
  while (!arena_.idle()) visit(arena_.pop());
  side_streams_.join();
}

void Pass::visit(std::uint32_t index) {
  const PassEntry entry = arena_.entries[index];
  Node& node = *entry.node;
  check_usable(operation_, node);
  const std::span<Tensor> grads(arena_.grads.data() + entry.first_grad, node.outputs);
  StreamState& stream = stream_of(node);
  {
    const OnStream guard(stream);
    if (!node.hooks.empty() && (leaf_hooks_ || !node.is_leaf())) run_hooks(node, grads);
    if (entry.captured) {
      for (std::size_t i = 0; i < targets_.size(); ++i) {
        if (targets_[i].node.get() == &node) results_[i] = grads[targets_[i].output];
      }
    }
    if (node.is_leaf()) {
      if (!restricted_) leaves_.push_back({static_cast<LeafNode*>(&node), std::move(grads[0])});
      grads[0] = Tensor();
      return;
    }
    if (entry.runs) run_backward(node, grads);
    for (Tensor& grad : grads) grad = Tensor();
  }
  if (!entry.runs) return;

  if (!retain_ && !node.reusable) {
    node.released = true;
    if (side_streams_.any()) {
      side_streams_.release_later(node);
    } else {
      node.release_saved();
    }
  }
  const std::span<Edge> edges = node.edges();
  for (std::size_t i = 0; i < edges.size(); ++i) {
    Tensor grad = std::exchange(arena_.input_grads[i], Tensor());
    if (!edges[i].node || !grad.defined()) continue;
    StreamState& from = grad.device() == node.device
                            ? stream
                            : capstan::detail::current_stream_state(grad.device());
    deliver(edges[i], std::move(grad), from);
  }
}

void Pass::run_hooks(Node& node, std::span<Tensor> grads) {
  const std::vector<Node::Hook> hooks = node.hooks;  // a hook may remove itself
  for (const Node::Hook& hook : hooks) {
    Tensor& grad = grads[hook.output];
    if (!hook.function || !grad.defined()) continue;
    Tensor replacement;
    {
      const CallSiteOverride lines_of_the_hook(Where{});
      replacement = (*hook.function)(grad);
    }
    if (!replacement.defined()) continue;
    CAPSTAN_CHECK(replacement.shape() == grad.shape() && replacement.dtype() == grad.dtype() &&
                      replacement.device() == grad.device(),
                  GradError, operation_, ": a hook on ", node.name, " returned ",
                  describe(replacement), " for a gradient that is ", describe(grad));
    grad = std::move(replacement);
  }
  for (const Node::Hook& hook : hooks) {
    const Tensor& grad = grads[hook.output];
    if (hook.retained && grad.defined()) retained_.push_back({hook.retained, grad});
  }
}

void Pass::run_backward(Node& node, std::span<Tensor> grads) {
  check_usable(operation_, node);  // again: a hook may have run backward through here
  const std::span<Edge> edges = node.edges();
  arena_.input_grads.resize(edges.size());
  if (restricted_) {
    arena_.needed.resize(edges.size());
    std::transform(edges.begin(), edges.end(), arena_.needed.begin(), [&](const Edge& edge) {
      return static_cast<std::uint8_t>(leads_to_target(edge));
    });
  }
  const Where& caller = capstan::detail::call_context.where;
  const CallSiteOverride site(node.where.line() != 0 ? node.where : caller);
  BackwardContext context(node, grads, arena_.input_grads,
                          restricted_ ? arena_.needed.data() : nullptr);
  {
    const capstan::detail::AutocastModesGuard no_autocast({});
    node.backward(context);
  }
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const Tensor& grad = arena_.input_grads[i];
    if (edges[i].node && grad.defined()) check_returned(node, i, grad, edges[i]);
  }
}

void Pass::deliver(const Edge& edge, Tensor grad, StreamState& from) {
  if (restricted_ && !leads_to_target(edge)) return;
  const std::uint32_t index = arena_.find_or_add(*edge.node).first;
  if (!arena_.entries[index].queued) arena_.push(index);
  StreamState& to = stream_of(*edge.node);
  side_streams_.hand_over(from, to, grad);
  Tensor& sum = arena_.grads[arena_.entries[index].first_grad + edge.output];
  if (!sum.defined()) {
    sum = std::move(grad);
  } else {
    const OnStream guard(to);
    add_into(sum, std::move(grad));
  }
}

Tensor Pass::own(Tensor& grad) const {
  // Memory goes back to the stream that it came from, so what leaves the pass is the caller's.
  if (is_exclusive(grad) && !side_streams_.any()) return std::move(grad);
  Tensor copy = grad_enabled() ? grad.clone() : ops::clone(grad);
  grad = Tensor();
  return copy;
}

void Pass::accumulate() {
  std::vector<LeafNode::Update> updates;
  updates.reserve(leaves_.size());
  for (LeafGrad& item : leaves_) {
    updates.push_back(item.leaf->prepare(std::move(item.grad), !side_streams_.any()));
  }
  for (RetainedGrad& item : retained_) {
    const Tensor& old = *item.place;
    item.grad = old.defined() ? add(old, item.grad) : own(item.grad);
  }
  for (std::size_t i = 0; i < leaves_.size(); ++i) leaves_[i].leaf->commit(std::move(updates[i]));
  for (RetainedGrad& item : retained_) *item.place = std::move(item.grad);
  side_streams_.settle();
}

std::vector<Tensor> Pass::take_results() {
  std::vector<Tensor> results;
  results.reserve(results_.size());
  for (Tensor& grad : results_) results.push_back(grad.defined() ? own(grad) : Tensor());
  side_streams_.settle();
  return results;
}

std::vector<Root> roots_of(const char* operation, const std::vector<Tensor>& outputs,
                           const std::vector<Tensor>& gradients) {
  CAPSTAN_CHECK(!outputs.empty(), GradError, operation, ": there are no outputs");
  CAPSTAN_CHECK(gradients.empty() || gradients.size() == outputs.size(), GradError, operation,
                ": got ", gradients.size(), " gradients for ", outputs.size(), " outputs");
  std::vector<Root> roots;
  roots.reserve(outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& output = outputs[i];
    CAPSTAN_CHECK(output.defined(), GradError, operation, ": output ", i, " is undefined");
    CAPSTAN_CHECK(requires_grad(output), GradError, operation, ": output ", i, ", ",
                  describe(output), ", does not come from a tensor that requires a gradient");
    Root root{edge_of(output), gradients.empty() ? Tensor() : gradients[i]};
    check_usable(operation, *root.edge.node);
    if (root.grad.defined()) {
      detail::check_gradient(root.grad, output, operation, ": gradient ", i);
    } else {
      CAPSTAN_CHECK(output.numel() == 1, GradError, operation, ": output ", i, ", ",
                    describe(output), ", has ", output.numel(),
                    " elements and no gradient; pass one, or reduce it to one element");
      root.grad = ones_like(output);
    }
    roots.push_back(std::move(root));
  }
  return roots;
}

/// `title` says which target it is in a message.
template <typename Title>
std::vector<Tensor> grad_of(const char* operation, const std::vector<Tensor>& outputs,
                            std::vector<Edge> targets, const std::vector<Tensor>& grad_outputs,
                            GradOptions options, bool leaf_hooks, const Title& title) {
  const auto check_used = [&](bool used, std::size_t i) {
    CAPSTAN_CHECK(used || options.allow_unused, GradError, operation, ": ", title(i),
                  ", has no influence on the outputs; allow_unused = true gives an undefined "
                  "tensor there");
  };
  Pass pass(operation, options.retain_graph, options.create_graph);
  if (!leaf_hooks) pass.skip_leaf_hooks();
  std::vector<Root> roots = roots_of(operation, outputs, grad_outputs);
  if (const auto unreached = pass.restrict_to(roots, std::move(targets))) {
    check_used(false, *unreached);
  }
  pass.run(std::move(roots));
  std::vector<Tensor> gradients = pass.take_results();
  for (std::size_t i = 0; i < gradients.size(); ++i) check_used(gradients[i].defined(), i);
  return gradients;
}

}  // namespace

std::vector<Tensor> grad_edges(const std::vector<Tensor>& outputs, const std::vector<Edge>& targets,
                               const std::vector<Tensor>& grad_outputs, GradOptions options,
                               bool leaf_hooks) {
  return grad_of(
      "grad_edges", outputs, targets, grad_outputs, options, leaf_hooks,
      [&](std::size_t i) { return capstan::detail::concat("target ", i, " of ", targets.size()); });
}

}  // namespace autograd

void backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& gradients,
              BackwardOptions options, Where where) {
  const CallSite site(where);
  autograd::Pass pass("backward", options.retain_graph, options.create_graph);
  pass.run(autograd::roots_of("backward", outputs, gradients));
  pass.accumulate();
}

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& grad_outputs, GradOptions options,
                         Where where) {
  const CallSite site(where);
  std::vector<autograd::Edge> targets;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CAPSTAN_CHECK(autograd::requires_grad(inputs[i]) || options.allow_unused, GradError,
                  "grad: input ", i, " does not require a gradient");
    targets.push_back(autograd::edge_of(inputs[i]));
  }
  return autograd::grad_of("grad", outputs, std::move(targets), grad_outputs, options, true,
                           [&](std::size_t i) {
                             return capstan::detail::concat("input ", i, ", ", describe(inputs[i]));
                           });
}

}  // namespace capstan

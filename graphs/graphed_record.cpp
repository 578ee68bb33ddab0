#include <algorithm>
#include <unordered_map>

#include "autograd/autocast.h"
#include "autograd/engine_edges.h"
#include "autograd/grad_mode.h"
#include "framework/core/error.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/write_journal.h"
#include "graphs/graphed.h"
#include "graphs/side_trip.h"
#include "graphs/written_inputs.h"
#include "ops/creation.h"
#include "ops/elementwise.h"

namespace capstan::detail {
namespace {

using autograd::Edge;
using autograd::LeafNode;

// One callable on its way to a variant.
class Recorder {
 public:
  Recorder(Graphed& graphed, std::span<const Tensor> samples)
      : graphed_(graphed), samples_(samples) {
    variant_.mode = graphed.mode();
    variant_.states = graphed.states();
    for (std::size_t i = 0; i < graphed.arguments.size(); ++i) {
      if (graphed.arguments[i].requires_grad) variant_.input_targets.push_back(i);
    }
  }

  // In the pool, on the stream of the capture.
  void add_slot() {
    auto slot = std::make_shared<GraphedSlot>(graphed_.device, graphed_.name);
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      const ArgumentSpec& want = graphed_.arguments[i];
      Tensor input = empty(want.shape, {.dtype = want.dtype, .device = graphed_.device});
      ops::copy(input, samples_[i]);
      if (want.requires_grad) input.set_requires_grad();
      slot->inputs.push_back(std::move(input));
    }
    variant_.slots.push_back(std::move(slot));
  }

  void warm_up() {
    GraphedSlot& slot = *variant_.slots.front();
    const std::uint64_t first = autograd::Node::next_sequence();
    // Conversions kept from before would be a history from before.
    const AutocastModesGuard uncached(uncached_autocast_modes());
    const TensorTree outputs = run(slot);
    const std::vector<Tensor> results = differentiable(outputs.flatten());
    if (results.empty()) return;
    std::vector<Tensor> ones;
    for (const Tensor& result : results) ones.push_back(ones_like(result));
    std::vector<Ref<LeafNode>> hidden = hidden_leaves(slot, results, first);
    check_used(autograd::grad_edges(results, targets(slot, hidden), ones, {.allow_unused = true},
                                    /*leaf_hooks=*/false),
               hidden);
  }

  void capture_forward(GraphedSlot& slot, const Where& where) {
    CaptureScope scope(slot.forward, capture_options(), where);
    const std::uint64_t first = autograd::Node::next_sequence();
    slot.outputs = run(slot);
    check_states();
    scope.finish(where);
    refuse_written_inputs(graphed_.name, slot.forward.recording(), slot.inputs,
                          [&](std::size_t i) { return graphed_.arguments[i].path; });

    const std::vector<Tensor> outputs = slot.outputs.flatten();
    for (std::uint32_t i = 0; i < outputs.size(); ++i) {
      CAPSTAN_CHECK(outputs[i].device() == graphed_.device, DeviceError, graphed_.name, ": result ",
                    i, " is ", describe(outputs[i]), ", the graph is of ", graphed_.device);
      slot.values.push_back(outputs[i].detach());
      if (outputs[i].requires_grad()) slot.differentiable.push_back(i);
    }
    const std::vector<Tensor> results = differentiable(outputs);
    std::vector<Ref<LeafNode>> hidden = hidden_leaves(slot, results, first);
    if (&slot == variant_.slots.front().get()) {
      variant_.hidden = std::move(hidden);
    } else {
      CAPSTAN_CHECK(hidden == variant_.hidden, StateError, graphed_.name,
                    ": two recordings of it refer to different leaves; what it refers to must "
                    "not change from call to call");
    }
    const PoolGuard in_pool(graphed_.options.pool);
    for (const Tensor& result : results) slot.grad_outputs.push_back(zeros_like(result));
  }

  void capture_backward(GraphedSlot& slot, const Where& where) {
    if (slot.differentiable.empty()) return;
    slot.backward =
        std::make_unique<Graph>(graphed_.device, GraphOptions{.name = graphed_.name + ".backward"});
    CaptureScope scope(*slot.backward, capture_options(), where);
    // Retained: the history is what keeps the memory that every later backward reads. Hooks of the
    // leaves run where their gradients are complete, in the pass that the callable is part of.
    slot.grad_inputs =
        autograd::grad_edges(differentiable(slot.outputs.flatten()), targets(slot, variant_.hidden),
                             slot.grad_outputs, {.retain_graph = true, .allow_unused = true},
                             /*leaf_hooks=*/false);
    scope.finish(where);
    check_used(slot.grad_inputs, variant_.hidden);
    note_saved(slot);
  }

  [[nodiscard]] GraphedVariant& variant() noexcept { return variant_; }
  [[nodiscard]] const Graphed& graphed() const noexcept { return graphed_; }

 private:
  [[nodiscard]] CaptureOptions capture_options() const {
    return {.pool = graphed_.options.pool, .error_mode = graphed_.options.error_mode};
  }

  [[nodiscard]] TensorTree run(const GraphedSlot& slot) const {
    const GradMode recording(true);
    return graphed_.run(graphed_.sample.with(slot.inputs));
  }

  [[nodiscard]] static std::vector<Tensor> differentiable(const std::vector<Tensor>& outputs) {
    std::vector<Tensor> results;
    for (const Tensor& output : outputs) {
      if (output.requires_grad()) results.push_back(output);
    }
    return results;
  }

  [[nodiscard]] std::vector<Ref<LeafNode>> hidden_leaves(const GraphedSlot& slot,
                                                         const std::vector<Tensor>& results,
                                                         std::uint64_t first) const {
    std::vector<Ref<LeafNode>> leaves = autograd::reachable_leaves(results, first);
    std::erase_if(leaves, [&](const Ref<LeafNode>& leaf) {
      return std::any_of(slot.inputs.begin(), slot.inputs.end(), [&](const Tensor& input) {
        return autograd::edge_of(input).node.get() == leaf.get();
      });
    });
    return leaves;
  }

  [[nodiscard]] std::vector<Edge> targets(const GraphedSlot& slot,
                                          const std::vector<Ref<LeafNode>>& hidden) const {
    std::vector<Edge> edges;
    for (const std::size_t i : variant_.input_targets) {
      edges.push_back(autograd::edge_of(slot.inputs[i]));
    }
    for (const Ref<LeafNode>& leaf : hidden) edges.push_back({leaf, 0});
    return edges;
  }

  void check_used(const std::vector<Tensor>& grads,
                  const std::vector<Ref<LeafNode>>& hidden) const {
    if (graphed_.options.allow_unused_input) return;
    const auto refuse = [&](const std::string& who) {
      throw GradError(concat(graphed_.name, ": ", who,
                             " requires a gradient and has no influence on the results; detach or "
                             "freeze it, or set allow_unused_input"));
    };
    for (std::size_t i = 0; i < variant_.input_targets.size(); ++i) {
      if (!grads[i].defined()) refuse(graphed_.arguments[variant_.input_targets[i]].path);
    }
    for (const RecordedState& state : variant_.states) {
      if (!state.requires_grad) continue;
      const autograd::Node* leaf = autograd::edge_of(state.tensor).node.get();
      const bool used = std::any_of(hidden.begin(), hidden.end(), [&](const Ref<LeafNode>& other) {
        return other.get() == leaf;
      });
      if (!used) refuse(state.name);
    }
  }

  // What lies outside of the recordings and is read by the backward: users may write it in between.
  void note_saved(GraphedSlot& slot) const {
    std::unordered_map<const RefCounted*, const Access*> reads;
    for (const RecordedOp& operation : slot.backward->recording().operations) {
      for (const Access& access : operation.reads) reads.try_emplace(access.owner, &access);
    }
    for (const Tensor& own : slot.grad_outputs) reads.erase(own.storage().get());
    for (const Ref<const RefCounted>& object : retained_by(*slot.backward)) {
      const auto* storage = dynamic_cast<const Storage*>(object.get());
      const auto read = reads.find(object.get());
      if (storage == nullptr || read == reads.end()) continue;
      std::string name = name_of_outside(slot, storage);
      if (name.empty() && storage->pool() != graphed_.options.pool.id()) {
        name = concat(read->second->dtype, read->second->shape, " that it refers to");
      }
      if (!name.empty()) slot.saved.push_back({Ref<const Storage>(storage), std::move(name)});
    }
  }

  [[nodiscard]] std::string name_of_outside(const GraphedSlot& slot, const Storage* storage) const {
    for (std::size_t i = 0; i < slot.inputs.size(); ++i) {
      if (slot.inputs[i].storage().get() == storage) {
        return "the graph's own " + graphed_.arguments[i].path;
      }
    }
    for (const RecordedState& state : variant_.states) {
      if (state.storage.get() == storage) return state.name;
    }
    return {};
  }

  // A replay would go on with the memory of before.
  void check_states() const {
    for (const RecordedState& state : variant_.states) {
      CAPSTAN_CHECK(
          state.tensor.storage() == state.storage, CaptureError, graphed_.name, ": ", state.name,
          " was given other memory during the recording; write it in place (copy_, add_)");
    }
  }

  Graphed& graphed_;
  const std::span<const Tensor> samples_;
  GraphedVariant variant_;
};

}  // namespace

std::vector<GraphedVariant> record_graphed(std::span<const std::shared_ptr<Graphed>> callables,
                                           std::span<const std::vector<Tensor>> samples,
                                           const Where& where) {
  const Graphed& first = *callables.front();
  std::vector<Recorder> recorders;
  for (std::size_t i = 0; i < callables.size(); ++i)
    recorders.emplace_back(*callables[i], samples[i]);
  // Always rolled back: a replay alone has effects.
  const WriteJournal untouched(JournalMode::host_state);
  {
    SideTrip trip(first.device);
    // After what the pool's other graphs still do in its memory.
    (void)first.order->take_turn(current_stream(first.device));
    const PoolGuard in_pool(first.options.pool);
    for (Recorder& recorder : recorders) recorder.add_slot();
    if (first.options.warmup > 0) {
      WriteJournal journal;
      for (int run = 0; run < first.options.warmup; ++run) {
        for (Recorder& recorder : recorders) recorder.warm_up();
      }
      journal.rollback();
    }
    for (int more = 1; more < first.options.slots; ++more) {
      for (Recorder& recorder : recorders) recorder.add_slot();
    }
    trip.end();
  }
  for (std::size_t s = 0; s < static_cast<std::size_t>(first.options.slots); ++s) {
    for (Recorder& recorder : recorders) {
      recorder.capture_forward(*recorder.variant().slots[s], where);
    }
    for (auto recorder = recorders.rbegin(); recorder != recorders.rend(); ++recorder) {
      recorder->capture_backward(*recorder->variant().slots[s], where);
    }
  }
  std::vector<GraphedVariant> variants;
  for (Recorder& recorder : recorders) variants.push_back(std::move(recorder.variant()));
  return variants;
}

}  // namespace capstan::detail

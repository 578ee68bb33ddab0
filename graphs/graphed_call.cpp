#include <algorithm>
#include <utility>

#include "autograd/grad_mode.h"
#include "framework/core/counters.h"
#include "framework/core/error.h"
#include "graphs/graphed.h"
#include "graphs/side_trip.h"
#include "ops/elementwise.h"

namespace capstan::detail {

TensorTree Graphed::run(const TensorTree& tree) const {
  return module != nullptr ? TensorTree(module->forward(tree.tensor())) : function(tree);
}

std::vector<bool> Graphed::mode() const {
  std::vector<bool> training;
  if (module != nullptr) {
    module->apply([&](nn::Module& part) { training.push_back(part.is_training()); });
  }
  return training;
}

std::vector<RecordedState> Graphed::states() const {
  std::vector<RecordedState> found;
  if (module == nullptr) return found;
  const auto add = [&](const char* kind, const nn::NamedTensors& tensors) {
    for (const auto& [path, tensor] : tensors) {
      found.push_back({concat(kind, " \"", path, '"'), tensor, tensor.storage(),
                       tensor.requires_grad()});
    }
  };
  add("parameter", module->named_parameters());
  add("buffer", module->named_buffers());
  return found;
}

std::vector<Tensor> Graphed::checked_arguments(const TensorTree& tree) const {
  const std::string difference = sample.structural_difference(tree);
  CAPSTAN_CHECK(difference.empty(), ValueError, name, ": argument", difference.starts_with('[') ? " " : ": ",
                difference, ", as when it was graphed");
  std::vector<Tensor> given = tree.flatten();
  for (std::size_t i = 0; i < given.size(); ++i) {
    const ArgumentSpec& want = arguments[i];
    const Tensor& got = given[i];
    CAPSTAN_CHECK(got.shape() == want.shape, ShapeError, name, ": ", want.path, " was graphed as ",
                  want.dtype, want.shape, ", got ", describe(got));
    CAPSTAN_CHECK(got.dtype() == want.dtype, DTypeError, name, ": ", want.path, " was graphed as ",
                  want.dtype, want.shape, ", got ", describe(got));
    CAPSTAN_CHECK(got.device() == device, DeviceError, name, ": ", want.path, " was graphed on ",
                  device, ", got ", describe(got));
    CAPSTAN_CHECK(!grad_enabled() || got.requires_grad() == want.requires_grad, GradError, name,
                  ": ", want.path, " was graphed with requires_grad = ",
                  want.requires_grad ? "true" : "false", ", got ",
                  got.requires_grad() ? "true" : "false",
                  want.requires_grad ? "; graph it with a sample that requires none"
                                     : "; its gradient would be lost: detach() it, or graph it with "
                                       "a sample that requires one");
  }
  return given;
}

std::string Graphed::changed_state(const GraphedVariant& variant) const {
  const std::vector<RecordedState> now = states();
  for (const RecordedState& old : variant.states) {
    const auto found = std::find_if(now.begin(), now.end(), [&](const RecordedState& state) {
      return state.name == old.name;
    });
    if (found == now.end()) return old.name + " was removed";
    if (!found->tensor.is_same(old.tensor)) return old.name + " is another tensor";
    if (found->storage != old.storage) return old.name + " was given other memory (set_data)";
    if (found->requires_grad != old.requires_grad) {
      return old.name + (old.requires_grad ? " was frozen" : " requires a gradient now");
    }
  }
  for (const RecordedState& state : now) {
    const bool known = std::any_of(
        variant.states.begin(), variant.states.end(),
        [&](const RecordedState& old) { return old.name == state.name; });
    if (!known) return state.name + " was added";
  }
  return {};
}

// The recording for this call, or null: run eagerly.
GraphedVariant* Graphed::find_variant(const Where& where) {
  const std::int64_t rebinds_now = counters().rebinds.load(std::memory_order_relaxed);
  const std::int64_t changes_now = counters().module_changes.load(std::memory_order_relaxed);
  if (module != nullptr && (rebinds != rebinds_now || module_changes != changes_now)) {
    for (const auto& [path, part] : module->named_modules()) {
      CAPSTAN_CHECK(path.empty() || !part->has_hooks(), StateError, name,
                    ": a hook was registered on \"", path,
                    "\" after graphing, where no replay would run it; register it on the graphed "
                    "module itself, or ungraph it first");
    }
    const std::string change = changed_state(variants.front());
    if (!change.empty()) {
      CAPSTAN_CHECK(options.on_change == OnChange::regraph, StateError, name, ": ", change,
                    " since it was graphed; write values in place (copy_), graph it again, or use "
                    "OnChange::regraph");
      variants.clear();
    }
    rebinds = rebinds_now;
    module_changes = changes_now;
  }
  const std::vector<bool> wanted = mode();
  for (GraphedVariant& variant : variants) {
    if (variant.mode == wanted) return &variant;
  }
  if (!variants.empty() && !options.graph_each_mode) return nullptr;
  (void)where;
  return nullptr;
}

GraphedSlot& Graphed::take_slot(GraphedVariant& variant, bool for_backward) {
  const auto& slots = variant.slots;
  std::size_t chosen = variant.next;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const std::size_t candidate = (variant.next + i) % slots.size();
    if (slots[candidate]->awaits_backward) continue;
    chosen = candidate;
    break;
  }
  // All in use: the oldest, whose backward will say so.
  if (slots[chosen]->awaits_backward) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i]->ticket < slots[chosen]->ticket) chosen = i;
    }
  }
  if (for_backward) variant.next = (chosen + 1) % slots.size();
  return *slots[chosen];
}

void Graphed::load(GraphedSlot& slot, std::span<const Tensor> given) {
  const auto is_own = [&](const Tensor& tensor) {
    return std::any_of(slot.inputs.begin(), slot.inputs.end(), [&](const Tensor& input) {
      return input.storage() == tensor.storage();
    });
  };
  // What lies in the graph's own inputs, at another place, is read before it is written.
  std::vector<Tensor> sources(given.begin(), given.end());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (same_memory(slot.inputs[i], sources[i])) continue;
    ++stats.input_copies;
    if (is_own(sources[i])) sources[i] = ops::clone(sources[i]);
  }
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (!same_memory(slot.inputs[i], sources[i])) ops::copy(slot.inputs[i], sources[i]);
  }
}

TensorTree Graphed::call(const TensorTree& tree, const Where& where) {
  const CallSite site(where);
  CAPSTAN_CHECK(!was_reset, StateError, name, ": it was reset; graph it again");
  const std::vector<Tensor> given = checked_arguments(tree);
  GraphedVariant* variant = find_variant(where);
  if (variant == nullptr) {
    if (!variants.empty() && !options.graph_each_mode) {
      ++stats.eager_calls;
      return run(tree);
    }
    const std::shared_ptr<Graphed> self[] = {shared_from_this()};
    const std::vector<Tensor> samples[] = {given};
    std::vector<GraphedVariant> recorded = record_graphed(self, samples, where);
    variants.push_back(std::move(recorded.front()));
    ++stats.captures;
    variant = &variants.back();
  }

  const bool wants_grad =
      grad_enabled() && !variant->slots.front()->differentiable.empty();
  GraphedSlot& slot = take_slot(*variant, wants_grad);
  {
    const auto turn = order->take_turn(current_stream(device));
    load(slot, given);
  }
  slot.retire_lent();
  slot.ticket = ++tickets;
  slot.awaits_backward = false;
  slot.forward.replay(where);
  ++stats.replays;

  std::vector<Tensor> results;
  results.reserve(slot.values.size());
  for (const Tensor& value : slot.values) {
    results.push_back(options.static_results ? slot.lend(value) : ops::clone(value));
  }
  if (wants_grad) {
    std::vector<autograd::Edge> edges;
    edges.reserve(variant->input_targets.size() + variant->hidden.size());
    for (const std::size_t i : variant->input_targets) {
      edges.push_back(autograd::edge_of(given[i]));
    }
    for (const Ref<autograd::LeafNode>& leaf : variant->hidden) edges.push_back({leaf, 0});
    const auto node =
        make_ref<GraphedNode>(shared_from_this(), slot.shared_from_this(), std::move(edges));
    for (std::uint32_t i = 0; i < slot.differentiable.size(); ++i) {
      autograd::detail::attach(results[slot.differentiable[i]], node, i);
    }
  }
  return slot.outputs.with(results);
}

void Graphed::reset() {
  if (std::exchange(was_reset, true)) return;
  if (module != nullptr) module->replace_forward(nullptr);
  for (GraphedVariant& variant : variants) {
    for (const auto& slot : variant.slots) slot->drop();
  }
  variants.clear();
  order.reset();
  options.pool = GraphPool();
}

}  // namespace capstan::detail

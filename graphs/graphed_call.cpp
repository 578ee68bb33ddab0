#include <algorithm>
#include <utility>

#include "autograd/autocast.h"
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

GraphedMode Graphed::mode() const {
  GraphedMode mode{.training = {}, .autocast = autocast_target(device.type)};
  if (module != nullptr) {
    module->apply([&](nn::Module& part) { mode.training.push_back(part.is_training()); });
  }
  return mode;
}

std::vector<RecordedState> Graphed::states() const {
  std::vector<RecordedState> found;
  if (module == nullptr) return found;
  const auto add = [&](const char* kind, const nn::NamedTensors& tensors) {
    for (const auto& [path, tensor] : tensors) {
      found.push_back(
          {concat(kind, " \"", path, '"'), tensor, tensor.storage(), tensor.requires_grad()});
    }
  };
  add("parameter", module->named_parameters());
  add("buffer", module->named_buffers());
  return found;
}

std::vector<Tensor> Graphed::checked_arguments(const TensorTree& tree) const {
  const std::string difference = sample.structural_difference(tree);
  CAPSTAN_CHECK(difference.empty(), ValueError, name, ": argument",
                difference.starts_with('[') ? " " : ": ", difference, ", as when it was graphed");
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
    CAPSTAN_CHECK(
        !grad_enabled() || got.requires_grad() == want.requires_grad, GradError, name, ": ",
        want.path, " was graphed with requires_grad = ", want.requires_grad ? "true" : "false",
        ", got ", got.requires_grad() ? "true" : "false",
        want.requires_grad ? "; graph it with a sample that requires none"
                           : "; its gradient would be lost: detach() it, or graph it with "
                             "a sample that requires one");
  }
  return given;
}

std::string Graphed::changed_state(const GraphedVariant& variant) const {
  const std::vector<RecordedState> now = states();
  for (const RecordedState& old : variant.states) {
    const auto found = std::find_if(
        now.begin(), now.end(), [&](const RecordedState& state) { return state.name == old.name; });
    if (found == now.end()) return old.name + " was removed";
    if (!found->tensor.is_same(old.tensor)) return old.name + " is another tensor";
    if (found->storage != old.storage) return old.name + " was given other memory (set_data)";
    if (found->requires_grad != old.requires_grad) {
      return old.name + (old.requires_grad ? " was frozen" : " requires a gradient now");
    }
  }
  for (const RecordedState& state : now) {
    const bool known =
        std::any_of(variant.states.begin(), variant.states.end(),
                    [&](const RecordedState& old) { return old.name == state.name; });
    if (!known) return state.name + " was added";
  }
  return {};
}

// The recording for this call, or null.
GraphedVariant* Graphed::find_variant() {
  const std::int64_t rebinds_now = counters().rebinds.load(std::memory_order_relaxed);
  const std::int64_t changes_now = counters().module_changes.load(std::memory_order_relaxed);
  const bool unchanged = rebinds == rebinds_now && module_changes == changes_now;
  if (!unchanged && module != nullptr && !variants.empty()) {
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
  }
  const std::optional<DType> autocast_now = autocast_target(device.type);
  if (!unchanged || autocast != autocast_now) {
    const GraphedMode wanted = mode();
    const auto found = std::find_if(variants.begin(), variants.end(),
                                    [&](const auto& variant) { return variant.mode == wanted; });
    current.reset();
    if (found != variants.end()) current = static_cast<std::size_t>(found - variants.begin());
    rebinds = rebinds_now;
    module_changes = changes_now;
    autocast = autocast_now;
  }
  return current ? &variants[*current] : nullptr;
}

GraphedVariant& Graphed::recorded() {
  CAPSTAN_CHECK(!variants.empty(), StateError, name, ": ",
                was_reset ? "it was reset" : "recording it again failed",
                ", so there is no graph; graph it again");
  return variants[current.value_or(0)];
}

GraphedVariant& Graphed::record(std::span<const Tensor> given, const Where& where) {
  const std::shared_ptr<Graphed> self[] = {shared_from_this()};
  const std::vector<Tensor> samples[] = {{given.begin(), given.end()}};
  std::vector<GraphedVariant> recorded = record_graphed(self, samples, where);
  variants.push_back(std::move(recorded.front()));
  current = variants.size() - 1;
  ++stats.captures;
  return variants.back();
}

// One whose backward is not awaited; else the oldest, and that backward will say so.
GraphedSlot& Graphed::next_slot(GraphedVariant& variant) const {
  const auto& slots = variant.slots;
  GraphedSlot* oldest = slots.front().get();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    GraphedSlot& candidate = *slots[(variant.next + i) % slots.size()];
    if (!candidate.awaits_backward) return candidate;
    if (candidate.ticket < oldest->ticket) oldest = &candidate;
  }
  return *oldest;
}

// A capture takes the turns of its own replays, this one's among them.
std::unique_lock<std::mutex> Graphed::take_turn() const {
  if (is_current_stream_capturing(device)) return {};
  return order->take_turn(current_stream(device));
}

void Graphed::load(GraphedSlot& slot, std::span<const Tensor> given) {
  const auto is_own = [&](const Tensor& tensor) {
    return std::any_of(slot.inputs.begin(), slot.inputs.end(),
                       [&](const Tensor& input) { return input.storage() == tensor.storage(); });
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
  GraphedVariant* variant = find_variant();
  if (variant == nullptr && !variants.empty() && !options.graph_each_mode) {
    ++stats.eager_calls;
    return run(tree);
  }
  const std::vector<Tensor> given = checked_arguments(tree);
  if (variant == nullptr) variant = &record(given, where);

  const bool wants_grad = grad_enabled() && !variant->slots.front()->differentiable.empty();
  GraphedSlot& slot = next_slot(*variant);
  // From here on the memory of the call before is no longer whole.
  slot.ticket = ++tickets;
  slot.awaits_backward = false;
  {
    const auto turn = take_turn();
    load(slot, given);
  }
  slot.forward.replay(where);
  ++stats.replays;
  slot.retire(GraphedSlot::Lent::result);

  std::vector<Tensor> results;
  results.reserve(slot.values.size());
  for (const Tensor& value : slot.values) {
    results.push_back(options.static_results ? slot.lend(value, GraphedSlot::Lent::result)
                                             : ops::clone(value));
  }
  if (wants_grad) {
    ++variant->next;
    for (SavedVersion& saved : slot.saved) saved.version = saved.storage->version();
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
  const auto self = shared_from_this();  // the module may hold the last reference
  if (nn::Module* const graphed = std::exchange(module, nullptr)) graphed->replace_forward(nullptr);
  for (GraphedVariant& variant : variants) {
    for (const auto& slot : variant.slots) slot->drop();
  }
  variants.clear();
  current.reset();
  order.reset();
  options.pool = GraphPool();
}

}  // namespace capstan::detail

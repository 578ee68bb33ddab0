#include "graphs/graphed_callable.h"

#include <optional>
#include <unordered_set>

#include "framework/core/error.h"
#include "framework/runtime/forbidden.h"
#include "framework/tensor/factory.h"
#include "graphs/graphed.h"

namespace capstan {
namespace detail {

struct GraphableAccess {
  static nn::Module* module(const Graphable& callable) { return callable.module_; }
  static Graphable::Function& function(Graphable& callable) { return callable.function_; }
  static const TensorTree& sample(const Graphable& callable) { return callable.sample_; }
  static const std::string& name(const Graphable& callable) { return callable.name_; }
};

Tensor argument(const TensorTree& tree, std::size_t index, std::size_t count) {
  if (count == 1 && !tree.is_list()) return tree.tensor();
  CAPSTAN_CHECK(tree.is_list() && tree.size() == count, ValueError,
                "make_graphed_callables: the callable takes ", count, " tensors, the sample is ",
                tree.kind(), "; pass so many, or a function of the whole TensorTree");
  return tree[index].tensor();
}

}  // namespace detail

namespace {

using detail::GraphableAccess;
using detail::Graphed;

// What a graphed module runs in place of its forward. The last copy goes with the module, or as it
// is ungraphed.
class GraphedForward {
 public:
  explicit GraphedForward(std::shared_ptr<Graphed> graphed)
      : held_(std::make_shared<const Holder>(std::move(graphed))) {}
  Tensor operator()(const Tensor& x) const { return graphed().call(x, Where::current()).tensor(); }
  [[nodiscard]] Graphed& graphed() const noexcept { return *held_->graphed; }

 private:
  struct Holder {
    explicit Holder(std::shared_ptr<Graphed> of) : graphed(std::move(of)) {}
    ~Holder() {
      graphed->module = nullptr;  // it goes, or has its own forward already
      graphed->reset();
    }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;
    const std::shared_ptr<Graphed> graphed;
  };
  std::shared_ptr<const Holder> held_;
};

std::string name_for(const Graphable& callable, const GraphedOptions& options, std::size_t index,
                     std::size_t count) {
  if (!GraphableAccess::name(callable).empty()) return GraphableAccess::name(callable);
  if (!options.name.empty()) {
    return count == 1 ? options.name : detail::concat(options.name, "[", index, "]");
  }
  const nn::Module* const module = GraphableAccess::module(callable);
  if (module != nullptr && !module->name().empty()) return module->name();
  return count == 1 ? "callable" : detail::concat("callable[", index, "]");
}

// Leaves out the samples themselves, so that they can die.
TensorTree structure_of(const TensorTree& sample, std::size_t tensors, Device device) {
  return sample.with(std::vector<Tensor>(tensors, empty({0}, {.device = device})));
}

void note_arguments(Graphed& graphed, const TensorTree& sample) {
  sample.for_each([&](const std::string& path, const Tensor& tensor) {
    std::string name = path.empty() ? "argument" : "argument " + path;
    CAPSTAN_CHECK(tensor.is_leaf(), GradError, graphed.name, ": the sample for ", name, " (",
                  describe(tensor),
                  ") is the result of a recorded operation; pass sample.detach(), ",
                  "with set_requires_grad() if calls bring tensors that require a gradient");
    CAPSTAN_CHECK(tensor.device() == graphed.device, DeviceError, graphed.name, ": the sample for ",
                  name, " is ", describe(tensor), ", another tensor is on ", graphed.device,
                  "; a graph is of one device");
    graphed.arguments.push_back(
        {std::move(name), tensor.shape(), tensor.dtype(), tensor.requires_grad()});
  });
}

void check_module(const Graphed& graphed, std::unordered_set<const nn::Module*>& seen) {
  const std::string& name = graphed.name;
  for (const auto& [path, part] : graphed.module->named_modules()) {
    const std::string which = path.empty() ? "the module" : "module \"" + path + '"';
    CAPSTAN_CHECK(!part->has_hooks(), StateError, name, ": ", which,
                  " has hooks, which no replay would run; remove them, graph the module, and "
                  "register those of the whole module again");
    CAPSTAN_CHECK(!part->is_forward_replaced(), StateError, name, ": ", which,
                  " is graphed already; ungraph() it first");
    CAPSTAN_CHECK(seen.insert(part).second, StateError, name, ": ", which,
                  " is in this call twice; graph the outermost module alone, or a function that "
                  "calls it");
  }
  for (const auto& [path, buffer] : graphed.module->named_buffers()) {
    CAPSTAN_CHECK(!buffer.requires_grad(), GradError, name, ": buffer \"", path,
                  "\" requires a gradient; only parameters may, register it as one");
  }
  for (const detail::RecordedState& state : graphed.states()) {
    CAPSTAN_CHECK(state.tensor.device() == graphed.device, DeviceError, name, ": ", state.name,
                  " is ", describe(state.tensor), ", the graph is of ", graphed.device,
                  "; move the module there with to(device)");
  }
}

Device device_for(const std::vector<Graphable>& callables) {
  std::optional<Device> device;
  for (const Graphable& callable : callables) {
    GraphableAccess::sample(callable).for_each([&](const std::string&, const Tensor& tensor) {
      if (!device) device = tensor.device();
    });
  }
  CAPSTAN_CHECK(device, ValueError,
                "make_graphed_callables: no sample has a tensor, so there is no device; pass at "
                "least one tensor as an argument");
  return *device;
}

void check_options(const GraphedOptions& options) {
  CAPSTAN_CHECK(options.warmup >= 0, ValueError,
                "make_graphed_callables: warmup must be at least 0, got ", options.warmup);
  CAPSTAN_CHECK(options.slots >= 1, ValueError,
                "make_graphed_callables: slots must be at least 1, got ", options.slots);
}

// All or none.
void replace_forwards(const std::vector<std::shared_ptr<Graphed>>& all) {
  std::size_t done = 0;
  try {
    for (; done < all.size(); ++done) {
      if (all[done]->module != nullptr) {
        all[done]->module->replace_forward(GraphedForward(all[done]));
      }
    }
  } catch (...) {
    while (done-- > 0) all[done]->reset();
    throw;
  }
}

const GraphedForward* graphed_forward(const nn::Module& module) {
  const auto replacement = module.forward_replacement();
  return replacement == nullptr ? nullptr : replacement->target<GraphedForward>();
}

}  // namespace

Graphable::Graphable(nn::Module& module, const Tensor& sample) : module_(&module), sample_(sample) {
  CAPSTAN_CHECK(sample.defined(), ValueError,
                "make_graphed_callables: the sample for a module is undefined; pass a tensor");
}

Graphable::Graphable(Function function, TensorTree sample, std::string name)
    : function_(std::move(function)), sample_(std::move(sample)), name_(std::move(name)) {
  CAPSTAN_CHECK(function_ != nullptr, ValueError,
                "make_graphed_callables: the function is empty; pass one that can be called");
}

std::vector<GraphedCallable> make_graphed_callables(std::vector<Graphable> callables,
                                                    GraphedOptions options, Where where) {
  const CallSite site(where);
  check_options(options);
  CAPSTAN_CHECK(!callables.empty(), ValueError,
                "make_graphed_callables: there is nothing to graph; pass at least one callable");
  const Device device = device_for(callables);
  refuse_while_capturing(device, Forbidden::make_graphed_callables, options.name);
  CAPSTAN_CHECK(!options.pool || options.pool.device() == device, DeviceError,
                "make_graphed_callables: the pool is of ", options.pool.device(),
                ", the samples are on ", device, "; pass a pool of ", device);

  std::vector<std::shared_ptr<Graphed>> all;
  std::vector<std::vector<Tensor>> samples;
  std::unordered_set<const nn::Module*> modules;
  for (std::size_t i = 0; i < callables.size(); ++i) {
    auto graphed = std::make_shared<Graphed>();
    graphed->module = GraphableAccess::module(callables[i]);
    graphed->function = std::move(GraphableAccess::function(callables[i]));
    graphed->name = name_for(callables[i], options, i, callables.size());
    graphed->device = device;
    note_arguments(*graphed, GraphableAccess::sample(callables[i]));
    samples.push_back(GraphableAccess::sample(callables[i]).flatten());
    graphed->sample =
        structure_of(GraphableAccess::sample(callables[i]), samples.back().size(), device);
    if (graphed->module != nullptr) check_module(*graphed, modules);
    all.push_back(std::move(graphed));
  }
  if (!options.pool) options.pool = graph_pool_handle(device, all.front()->name);
  const auto order = ReplayOrder::of(options.pool);
  for (const auto& graphed : all) {
    graphed->options = options;
    graphed->order = order;
  }

  std::vector<detail::GraphedVariant> variants = detail::record_graphed(all, samples, where);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i]->variants.push_back(std::move(variants[i]));
    all[i]->stats.captures = 1;
  }
  replace_forwards(all);
  std::vector<GraphedCallable> handles;
  for (auto& graphed : all) handles.push_back(GraphedCallable(std::move(graphed)));
  return handles;
}

GraphedCallable make_graphed_callables(nn::Module& module, const Tensor& sample,
                                       GraphedOptions options, Where where) {
  return make_graphed_callables({Graphable(module, sample)}, std::move(options), where).front();
}

GraphedCallable make_graphed_callables(Graphable::Function function, TensorTree sample,
                                       GraphedOptions options, Where where) {
  return make_graphed_callables({Graphable(std::move(function), std::move(sample))},
                                std::move(options), where)
      .front();
}

void ungraph(nn::Module& module, Where where) {
  const CallSite site(where);
  const GraphedForward* const forward = graphed_forward(module);
  CAPSTAN_CHECK(forward != nullptr, StateError, "ungraph: module \"", module.name(),
                "\" is not graphed; only what make_graphed_callables was given can be ungraphed");
  forward->graphed().reset();
}

GraphedCallable::GraphedCallable(std::shared_ptr<Graphed> graphed) : graphed_(std::move(graphed)) {}

TensorTree GraphedCallable::call(const TensorTree& arguments, Where where) {
  return graphed_->call(arguments, where);
}
TensorTree GraphedCallable::operator()(Where where) { return graphed_->call({}, where); }
TensorTree GraphedCallable::operator()(const TensorTree& a, Where where) {
  return graphed_->call(a, where);
}
TensorTree GraphedCallable::operator()(const TensorTree& a, const TensorTree& b, Where where) {
  return graphed_->call(TensorTree::list({a, b}), where);
}
TensorTree GraphedCallable::operator()(const TensorTree& a, const TensorTree& b,
                                       const TensorTree& c, Where where) {
  return graphed_->call(TensorTree::list({a, b, c}), where);
}
TensorTree GraphedCallable::operator()(const TensorTree& a, const TensorTree& b,
                                       const TensorTree& c, const TensorTree& d, Where where) {
  return graphed_->call(TensorTree::list({a, b, c, d}), where);
}

const std::string& GraphedCallable::name() const { return graphed_->name; }
GraphedStats GraphedCallable::stats() const { return graphed_->stats; }
GraphPool GraphedCallable::pool() const { return graphed_->options.pool; }

TensorTree GraphedCallable::static_inputs() const {
  return graphed_->sample.with(graphed_->next_slot(graphed_->recorded()).inputs);
}
const Graph& GraphedCallable::forward_graph() const {
  return graphed_->next_slot(graphed_->recorded()).forward;
}
const Graph* GraphedCallable::backward_graph() const {
  return graphed_->next_slot(graphed_->recorded()).backward.get();
}
void GraphedCallable::reset() { graphed_->reset(); }

}  // namespace capstan

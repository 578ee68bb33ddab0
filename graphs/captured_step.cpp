#include "graphs/captured_step.h"

#include <algorithm>
#include <optional>
#include <span>

#include "autograd/autocast.h"
#include "autograd/grad_mode.h"
#include "autograd/leaf_watch.h"
#include "framework/core/counters.h"
#include "framework/core/error.h"
#include "framework/runtime/forbidden.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/write_journal.h"
#include "graphs/capture_scope.h"
#include "graphs/replay_order.h"
#include "graphs/side_trip.h"
#include "graphs/written_inputs.h"
#include "ops/elementwise.h"

namespace capstan {
namespace {

using autograd::LeafNode;
using autograd::LeafWatch;

// The gradient of one leaf, as the recorded run found and left it.
struct LeafGrad {
  Ref<LeafNode> leaf;
  Tensor before;
  Tensor after;
  bool uses_before;
};

// One recorded signature.
struct Entry {
  explicit Entry(Device device, const std::string& name)
      : autocast(detail::autocast_target(device.type)), graph(device, {.name = name}) {}

  std::vector<Tensor> inputs;
  bool grad_mode = grad_enabled();
  std::optional<DType> autocast;  // where it was recorded
  Graph graph;
  std::vector<Tensor> outputs;
  std::vector<LeafGrad> leaves;
};

bool matches(const Entry& entry, std::span<const Tensor> inputs) {
  const auto same_kind = [](const Tensor& a, const Tensor& b) {
    return a.shape() == b.shape() && a.dtype() == b.dtype();
  };
  // Whether a gradient exists decides between setting it and adding to it.
  const auto same_start = [](const LeafGrad& grad) {
    return !grad.uses_before || grad.before.defined() == grad.leaf->get_grad().defined();
  };
  return entry.grad_mode == grad_enabled() &&
         entry.autocast == detail::autocast_target(entry.graph.device().type) &&
         std::equal(inputs.begin(), inputs.end(), entry.inputs.begin(), entry.inputs.end(),
                    same_kind) &&
         std::all_of(entry.leaves.begin(), entry.leaves.end(), same_start);
}

}  // namespace

struct CapturedStep::Impl {
  Impl(Device place, Function step_function, StepOptions step_options)
      : device(place),
        function(std::move(step_function)),
        options(std::move(step_options)),
        pool(graph_pool_handle(device, options.name)),
        order(ReplayOrder::of(pool)) {}

  Entry& advance(std::span<const Tensor> inputs, const Where& where);
  [[nodiscard]] Tensor hand_out(const Tensor& output, const Where& where) const;
  [[nodiscard]] const Entry& last(const char* operation) const;
  void drop_all();

 private:
  void check(std::span<const Tensor> inputs) const;
  [[nodiscard]] bool find(std::span<const Tensor> inputs);
  void load(const Entry& entry, std::span<const Tensor> inputs) const;
  void record(std::span<const Tensor> inputs, const Where& where);
  void warm_up(const Entry& entry) const;
  void capture(Entry& entry, const Where& where) const;

 public:
  const Device device;
  const Function function;
  const StepOptions options;
  GraphPool pool;
  std::shared_ptr<ReplayOrder> order;
  std::vector<std::unique_ptr<Entry>> entries;  // the last used one first
  std::int64_t rebinds = 0;                     // the process's count when last recorded
  StepStats stats;
};

void CapturedStep::Impl::check(std::span<const Tensor> inputs) const {
  refuse_while_capturing(device, Forbidden::captured_step, options.name);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CAPSTAN_CHECK(inputs[i].defined(), ValueError, options.name, ": input ", i,
                  " is undefined; pass a tensor");
    CAPSTAN_CHECK(inputs[i].device() == device, DeviceError, options.name, ": input ", i, " is ",
                  describe(inputs[i]), ", the step runs on ", device, "; pass input.to(device)");
    CAPSTAN_CHECK(!grad_enabled() || !inputs[i].requires_grad(), GradError, options.name,
                  ": input ", i, " (", describe(inputs[i]),
                  ") requires a gradient, which would end in the step's copy of it; pass "
                  "input.detach(), or let the function refer to the tensor itself");
  }
}

// Moves the entry for `inputs` to the front.
bool CapturedStep::Impl::find(std::span<const Tensor> inputs) {
  if (rebinds != counters().rebinds.load(std::memory_order_relaxed)) entries.clear();
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const auto& entry) { return matches(*entry, inputs); });
  if (found == entries.end()) return false;
  std::rotate(entries.begin(), found, found + 1);
  return true;
}

void CapturedStep::Impl::load(const Entry& entry, std::span<const Tensor> inputs) const {
  const auto turn = order->take_turn(current_stream(device));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!same_memory(entry.inputs[i], inputs[i])) ops::copy(entry.inputs[i], inputs[i]);
  }
  for (const LeafGrad& grad : entry.leaves) {
    if (!grad.uses_before || !grad.before.defined()) continue;
    const Tensor now = grad.leaf->get_grad();
    if (!same_memory(grad.before, now)) ops::copy(grad.before, now);
  }
}

void CapturedStep::Impl::warm_up(const Entry& entry) const {
  SideTrip trip(device);
  WriteJournal journal;
  for (int run = 0; run < options.warmup; ++run) (void)function(entry.inputs);
  journal.rollback();
  trip.end();
}

void CapturedStep::Impl::capture(Entry& entry, const Where& where) const {
  // Always rolled back: a replay alone has effects.
  const WriteJournal journal(JournalMode::host_state);
  CaptureScope scope(entry.graph, {.pool = pool, .error_mode = options.error_mode}, where);
  {
    const LeafWatch watch;
    for (const Tensor& output : function(entry.inputs)) {
      entry.outputs.push_back(output.defined() ? output.detach() : Tensor());
    }
    for (const LeafWatch::Touched& touched : watch.touched()) {
      entry.leaves.push_back(
          {touched.leaf, touched.before, touched.leaf->get_grad(), touched.uses_it});
    }
  }
  scope.finish(where);
  refuse_written_inputs(options.name, entry.graph.recording(), entry.inputs,
                        [](std::size_t i) { return "input " + std::to_string(i); });
}

void CapturedStep::Impl::record(std::span<const Tensor> inputs, const Where& where) {
  auto entry = std::make_unique<Entry>(device, options.name);
  {
    const CallSite site(where);
    for (const Tensor& input : inputs) {
      entry->inputs.push_back(empty(input.shape(), {.dtype = input.dtype(), .device = device}));
    }
    if (options.warmup > 0) load(*entry, inputs);
  }
  if (options.warmup > 0) {
    warm_up(*entry);
    // Blocks of the side stream would serve nobody else.
    allocator(device).empty_cache();
  }
  capture(*entry, where);

  entries.insert(entries.begin(), std::move(entry));
  ++stats.captures;
  if (entries.size() > static_cast<std::size_t>(options.max_graphs)) {
    entries.pop_back();
    ++stats.evictions;
  }
  rebinds = counters().rebinds.load(std::memory_order_relaxed);
}

Entry& CapturedStep::Impl::advance(std::span<const Tensor> inputs, const Where& where) {
  {
    const CallSite site(where);
    check(inputs);
  }
  if (!find(inputs)) {
    try {
      record(inputs, where);
    } catch (...) {
      if (entries.empty()) drop_all();  // with what the failed capture left in the pool
      throw;
    }
  }
  Entry& entry = *entries.front();
  const CallSite site(where);
  load(entry, inputs);
  entry.graph.replay(where);
  for (const LeafGrad& grad : entry.leaves) {
    if (!grad.leaf->get_grad().is_same(grad.after)) grad.leaf->set_grad(grad.after);
  }
  ++stats.replays;
  return entry;
}

Tensor CapturedStep::Impl::hand_out(const Tensor& output, const Where& where) const {
  if (!output.defined() || options.static_outputs) return output;
  const CallSite site(where);
  return ops::clone(output);
}

const Entry& CapturedStep::Impl::last(const char* operation) const {
  CAPSTAN_CHECK(!entries.empty(), StateError, options.name, ": ", operation,
                " needs a recorded graph, got none; call the step first");
  return *entries.front();
}

void CapturedStep::Impl::drop_all() {
  GraphPool fresh = graph_pool_handle(device, options.name);
  std::shared_ptr<ReplayOrder> fresh_order = ReplayOrder::of(fresh);
  entries.clear();
  pool = std::move(fresh);
  order = std::move(fresh_order);
}

CapturedStep::CapturedStep(Device device, Function function, StepOptions options) {
  CAPSTAN_CHECK(function != nullptr, ValueError, options.name, ": the function is empty");
  CAPSTAN_CHECK(options.warmup >= 0, ValueError, options.name, ": warmup must be at least 0, got ",
                options.warmup);
  CAPSTAN_CHECK(options.max_graphs >= 1, ValueError, options.name,
                ": max_graphs must be at least 1, got ", options.max_graphs);
  impl_ = std::make_unique<Impl>(device, std::move(function), std::move(options));
}

CapturedStep::~CapturedStep() = default;
CapturedStep::CapturedStep(CapturedStep&&) noexcept = default;
CapturedStep& CapturedStep::operator=(CapturedStep&&) noexcept = default;

std::vector<Tensor> CapturedStep::run(const std::vector<Tensor>& inputs, Where where) {
  const Entry& entry = impl_->advance(inputs, where);
  std::vector<Tensor> results;
  results.reserve(entry.outputs.size());
  for (const Tensor& output : entry.outputs) results.push_back(impl_->hand_out(output, where));
  return results;
}

Tensor CapturedStep::first_of(std::span<const Tensor> inputs, const Where& where) {
  const Entry& entry = impl_->advance(inputs, where);
  return entry.outputs.empty() ? Tensor() : impl_->hand_out(entry.outputs.front(), where);
}

Tensor CapturedStep::operator()(Where where) { return first_of({}, where); }

Tensor CapturedStep::operator()(const Tensor& a, Where where) { return first_of({&a, 1}, where); }

Tensor CapturedStep::operator()(const Tensor& a, const Tensor& b, Where where) {
  const Tensor inputs[] = {a, b};
  return first_of(inputs, where);
}

Tensor CapturedStep::operator()(const Tensor& a, const Tensor& b, const Tensor& c, Where where) {
  const Tensor inputs[] = {a, b, c};
  return first_of(inputs, where);
}

void CapturedStep::check_count(std::size_t got, std::size_t taken) {
  CAPSTAN_CHECK(got == taken, ValueError, "captured step: the function takes ", taken,
                " tensors, got ", got);
}

StepStats CapturedStep::stats() const noexcept { return impl_->stats; }
GraphPool CapturedStep::pool() const noexcept { return impl_->pool; }
const Graph& CapturedStep::graph() const { return impl_->last("graph").graph; }
const std::vector<Tensor>& CapturedStep::inputs() const { return impl_->last("inputs").inputs; }
void CapturedStep::reset() { impl_->drop_all(); }

}  // namespace capstan

#include "graphs/graph.h"

#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "framework/core/counters.h"
#include "framework/core/error.h"
#include "framework/runtime/capture_probe.h"
#include "framework/runtime/emulated_checks.h"
#include "framework/runtime/faults.h"
#include "framework/runtime/forbidden.h"
#include "framework/runtime/order_check.h"
#include "framework/tensor/newborn_storages.h"
#include "framework/tensor/write_journal.h"
#include "graphs/captured_graph.h"
#include "graphs/graph_hooks.h"
#include "graphs/nested_replay.h"

namespace capstan {
namespace {

// At the end of every function that may end a capture.
struct ClearParking {
  ~ClearParking() { release_parked(); }
};

// A replay may run what the recording does not order in either order, or at the same time.
void refuse_missing_waits(const std::string& name, const Recording& recording) {
  const std::vector<OrderFinding> findings = check_order(recording);
  if (findings.empty()) return;
  throw CaptureError(detail::concat(
      "capture_end: graph \"", name, "\" lacks a wait: ", describe(recording, findings.front()),
      findings.size() == 1 ? ""
                           : detail::concat("; and ", findings.size() - 1, " more such pairs")));
}

}  // namespace

struct Graph::Impl {
  enum class State { empty, capturing, captured, ready };

  Impl(Device place, GraphOptions graph_options)
      : device(place), options(std::move(graph_options)) {}

  [[nodiscard]] State state() const noexcept {
    if (session) return State::capturing;
    if (!held) return State::empty;
    return held->exec ? State::ready : State::captured;
  }

  [[noreturn]] void refuse(const char* operation, const char* remedy) const {
    const char* words = "";
    switch (state()) {
      case State::empty: words = "is empty"; break;
      case State::capturing: words = "is capturing"; break;
      case State::captured: words = "holds a capture that is not instantiated"; break;
      case State::ready: words = "already holds a captured graph"; break;
    }
    throw StateError(
        detail::concat(operation, ": graph \"", options.name, "\" ", words, "; ", remedy,
                       last_failure.empty() ? "" : "; its last capture failed: ", last_failure));
  }

  void refuse_in_hook(const char* operation) const {
    CAPSTAN_CHECK(!hooks.running(), StateError, operation, ": a hook of graph \"", options.name,
                  "\" runs; do so after the call that the hook belongs to");
  }

  void submit(Captured& captured, const Stream& stream);

  [[nodiscard]] Captured& captured(const char* operation) {
    if (!held) {
      refuse(operation, state() == State::capturing ? "end the capture first"
                                                    : "capture something into it first");
    }
    return *held;
  }

  const Device device;
  const GraphOptions options;
  Ref<CaptureSession> session;                           // while capturing
  GraphPool pool;                                        // while capturing
  bool check_order = true;                               // while capturing
  bool refuse_empty = false;                             // while capturing
  ForeignMemory foreign_memory = ForeignMemory::retain;  // while capturing
  std::optional<Captured> held;
  std::string last_failure;
  GraphHooks hooks;
};

// One replay: on the stream, or, while it captures, as a part of that capture.
void Graph::Impl::submit(Captured& captured, const Stream& stream) {
  StreamState& state = stream.state();
  captured.foreign.check(options.name, captured.recording, captured.may_be_freed);
  if (stream.is_capturing()) {
    CAPSTAN_CHECK(
        !captured.may_be_freed, CaptureError, "graph.replay: graph \"", options.name,
        "\" checks the memory that it uses instead of holding it, so no other capture can "
        "contain it; capture it with {.foreign_memory = ForeignMemory::retain}");
    capture_replay({.name = options.name,
                    .pools = captured.pools,
                    .recording = captured.recording,
                    .prologues = captured.prologues,
                    .retained = captured.retained,
                    .exec = *captured.exec},
                   state);
    for (Storage* storage : captured.written) storage->bump_version();
    if (captured.newborns) NewbornStorages::nest(*state.session(), captured.newborns);
    return;
  }
  raise_faults(device);
  {
    const ReplayTurns turns = captured.pools->take_turns(stream);
    state.runtime.make_current();
    if (WriteJournal* const journal = WriteJournal::current()) {
      for (Storage* storage : captured.written) journal->keep(Ref<Storage>(storage));
    }
    for (const Ref<ReplayPrologue>& prologue : captured.prologues) prologue->before_replay(state);
    if (detail::checks_operations.load(std::memory_order_relaxed)) [[unlikely]] {
      detail::check_replay(captured.recording, options.name, state);
    }
    captured.exec->launch(state);
    for (Storage* storage : captured.written) storage->bump_version();
    ++captured.replays;
  }
  if (captured.newborns) {
    static_cast<NewbornStorages&>(*std::exchange(captured.newborns, nullptr)).allow_use();
  }
  detail::count(counters().replays);
  if (device.is_host()) raise_faults(device);
}

Graph::Graph(Device device, GraphOptions options)
    : impl_(std::make_unique<Impl>(device, std::move(options))) {}

Graph::~Graph() { reset(); }

void Graph::capture_begin(CaptureOptions options, Where where) {
  const CallSite site(where);
  impl_->refuse_in_hook("capture_begin");
  if (impl_->session) impl_->refuse("capture_begin", "end or abandon that capture first");
  if (impl_->held) {
    impl_->refuse("capture_begin", "call reset() first, or capture into another graph");
  }
  CAPSTAN_CHECK(!options.pool || options.pool.device() == impl_->device, DeviceError,
                "capture_begin: graph \"", impl_->options.name, "\" is of ", impl_->device,
                " and the pool of ", options.pool.device(), "; make a pool for ", impl_->device);
  GraphPool pool = options.pool ? std::move(options.pool)
                                : graph_pool_handle(impl_->device, impl_->options.name);
  impl_->session = CaptureSession::begin(current_stream(impl_->device),
                                         {.pool = pool.id(), .mode = options.error_mode});
  impl_->pool = std::move(pool);
  impl_->check_order = options.check_order;
  impl_->refuse_empty = options.refuse_empty;
  impl_->foreign_memory = options.foreign_memory;
  impl_->last_failure.clear();
}

void Graph::capture_end(Where where) {
  const CallSite site(where);
  if (!impl_->session) impl_->refuse("capture_end", "call capture_begin first");
  const Stream origin = impl_->session->origin();
  const Stream current = current_stream(impl_->device);
  CAPSTAN_CHECK(current == origin, CaptureError, "capture_end: graph \"", impl_->options.name,
                "\" captures stream ", origin.id(), " of ", impl_->device, ", but stream ",
                current.id(), " is current; make stream ", origin.id(),
                " current and end the capture again, it goes on until then");

  const ClearParking afterwards;
  GraphPool pool = std::move(impl_->pool);
  const Ref<CaptureSession> session = std::move(impl_->session);
  std::exception_ptr hook_failure;
  try {
    CaptureResult result = session->finish();
    if (impl_->check_order) refuse_missing_waits(impl_->options.name, result.recording);
    Captured captured;
    captured.pools = make_ref<ReplayPools>(std::move(pool), result.retained);
    captured.written = written_among(result.retained, result.recording);
    captured.recording = std::move(result.recording);
    captured.prologues = std::move(result.prologues);
    captured.foreign = ForeignStorages(result.retained);
    captured.may_be_freed = impl_->foreign_memory == ForeignMemory::check;
    if (captured.may_be_freed) {
      std::erase_if(result.retained, [](const Ref<const RefCounted>& object) {
        return dynamic_cast<const Storage*>(object.get()) != nullptr;
      });
    }
    captured.retained = std::move(result.retained);
    captured.newborns = std::move(result.newborns);
    captured.native = std::move(result.graph);
    if (captured.native->node_count() == 0) {
      const std::string text =
          detail::concat("graph \"", impl_->options.name, "\" captured no operation on ",
                         impl_->device, "; was the work submitted to another stream or device?");
      CAPSTAN_CHECK(!impl_->refuse_empty, CaptureError, "capture_end: ", text);
      std::fprintf(stderr, "capstan: %s\n", text.c_str());
    }
    impl_->held = std::move(captured);
    hook_failure = impl_->hooks.run_caught(GraphMoment::capture_end);
    if (!impl_->options.keep_graph) {
      detail::probe_capture(detail::CapturePoint::instantiate);
      impl_->held->exec = impl_->held->native->instantiate();
      impl_->held->native = nullptr;
    }
    if (impl_->held->newborns) {
      static_cast<NewbornStorages&>(*impl_->held->newborns)
          .refuse_use(std::make_shared<const std::string>(detail::concat(
              "graph \"", impl_->options.name,
              "\" computes this tensor and was never replayed; call replay() first")));
    }
  } catch (const std::exception& error) {
    impl_->held.reset();
    impl_->last_failure = error.what();
    throw;
  }
  if (hook_failure) std::rethrow_exception(hook_failure);
  if (impl_->held->exec) impl_->hooks.run(GraphMoment::post_instantiate);
}

void Graph::abandon() noexcept {
  if (!impl_->session) return;
  const ClearParking afterwards;
  const Ref<CaptureSession> session = std::move(impl_->session);
  const std::int64_t operations = session->operation_count();
  const std::string fault = session->abandon();
  impl_->pool = GraphPool();
  try {
    impl_->last_failure = detail::concat("abandoned after ", operations, " operations",
                                         fault.empty() ? "" : "; ", fault);
  } catch (const std::bad_alloc&) {
    impl_->last_failure = "abandoned";
  }
}

void Graph::instantiate(Where where) {
  const CallSite site(where);
  impl_->refuse_in_hook("instantiate");
  Captured& captured = impl_->captured("instantiate");
  if (!captured.native) {
    impl_->refuse("instantiate", "only a graph made with {.keep_graph = true} can do so again");
  }
  detail::probe_capture(detail::CapturePoint::instantiate);
  captured.exec = captured.native->instantiate();
  impl_->hooks.run(GraphMoment::post_instantiate);
}

void Graph::replay(Where where) {
  const CallSite site(where);
  impl_->refuse_in_hook("graph.replay");
  Captured& captured = impl_->captured("graph.replay");
  if (!captured.exec) impl_->refuse("graph.replay", "call instantiate() first");
  refuse_another_device("graph.replay", impl_->device);
  impl_->hooks.run(GraphMoment::replay_start);
  try {
    impl_->submit(captured, current_stream(impl_->device));
  } catch (...) {
    (void)impl_->hooks.run_caught(GraphMoment::replay_end);
    throw;
  }
  impl_->hooks.run(GraphMoment::replay_end);
}

void Graph::reset() {
  impl_->refuse_in_hook("graph.reset");
  abandon();
  impl_->last_failure.clear();
  release_parked();
  if (impl_->held) release(*std::exchange(impl_->held, std::nullopt));
}

Device Graph::device() const noexcept { return impl_->device; }
const std::string& Graph::name() const noexcept { return impl_->options.name; }
const std::string& Graph::last_failure() const noexcept { return impl_->last_failure; }
bool Graph::is_ready() const noexcept { return impl_->state() == Impl::State::ready; }

GraphPool Graph::pool(Where where) const {
  const CallSite site(where);
  return impl_->captured("graph.pool").pools->own();
}

std::vector<GraphPool> Graph::pools(Where where) const {
  const CallSite site(where);
  return impl_->captured("graph.pools").pools->all();
}

const Recording& Graph::recording(Where where) const {
  const CallSite site(where);
  return impl_->captured("graph.recording").recording;
}

const std::vector<Ref<const RefCounted>>& detail::retained_by(const Graph& graph) {
  return graph.impl_->captured("graph.retained").retained;
}

std::int64_t Graph::replay_count() const noexcept { return impl_->held ? impl_->held->replays : 0; }

int Graph::register_capture_end_hook(Hook hook) {
  return impl_->hooks.add(GraphMoment::capture_end, std::move(hook));
}
int Graph::register_post_instantiate_hook(Hook hook) {
  return impl_->hooks.add(GraphMoment::post_instantiate, std::move(hook));
}
int Graph::register_replay_start_hook(Hook hook) {
  return impl_->hooks.add(GraphMoment::replay_start, std::move(hook));
}
int Graph::register_replay_end_hook(Hook hook) {
  return impl_->hooks.add(GraphMoment::replay_end, std::move(hook));
}
void Graph::remove_hook(int id) { impl_->hooks.remove(id); }

void Graph::retain_object(Ref<const RefCounted> object, Where where) {
  const CallSite site(where);
  if (impl_->session) return impl_->session->retain(std::move(object));
  impl_->captured("graph.retain_object").retained.push_back(std::move(object));
}

void Graph::retain_object(std::shared_ptr<const void> object, Where where) {
  struct Holder final : RefCounted {
    explicit Holder(std::shared_ptr<const void> kept) : object(std::move(kept)) {}
    const std::shared_ptr<const void> object;
  };
  retain_object(make_ref<const Holder>(std::move(object)), where);
}

void* Graph::raw_graph(Where where) const {
  const CallSite site(where);
  const Captured& captured = impl_->captured("graph.raw_graph");
  if (!captured.native) {
    impl_->refuse("graph.raw_graph",
                  "only a graph made with {.keep_graph = true} keeps its template");
  }
  return captured.native->native_handle();
}

void* Graph::raw_exec(Where where) const {
  const CallSite site(where);
  const Captured& captured = impl_->captured("graph.raw_exec");
  if (!captured.exec) impl_->refuse("graph.raw_exec", "call instantiate() first");
  return captured.exec->native_handle();
}

}  // namespace capstan

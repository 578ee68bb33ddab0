#include "tests/graphs/forbidden_calls.h"

#include "autograd/arithmetic.h"
#include "autograd/grad_check.h"
#include "graphs/capture_scope.h"
#include "ops/creation.h"

namespace capstan::testing {
namespace {

constexpr const char* kNothingRuns = "nothing runs before a replay";
constexpr const char* kNeedsValues = "it needs the values on the host, and nothing has run yet";
constexpr const char* kDrawn =
    "the numbers of a capture are drawn by its replays, from where the generator then stands; call "
    "it before the capture or between replays";
constexpr const char* kSet =
    "every replay would set the same value again; call it between replays, which see the change";

std::string both(const char* reason, const char* remedy) {
  return std::string(reason) + "; " + remedy;
}

std::vector<Tensor> square(const std::vector<Tensor>& x) { return {x[0] * x[0]}; }

}  // namespace

ForbiddenCalls::ForbiddenCalls(Device place)
    : device(place),
      x(ones({1}, {.device = place})),
      wide(ones({1}, {.dtype = DType::float64, .device = place}).set_requires_grad()),
      added(ones({1}, {.device = place}).set_requires_grad()),
      clipped(ones({1}, {.device = place}).set_requires_grad()),
      start(place, {.timing = true}),
      end(place, {.timing = true}),
      generator(3, place),
      layer(2, 2, {.device = place}),
      sgd(layer.parameters(), {.momentum = 0.9}),
      adam(layer.parameters(), {}),
      scheduler(adam, {.step_size = 1}),
      ema({x}),
      scaler(place),
      loader({ones({2, 1}), zeros({2}, {.dtype = DType::int64}), 1},
             {.batch_size = 1, .device = place}),
      pool(graph_pool_handle(place)),
      other(place, {.name = "other"}),
      step(place, [this] { x.add_(1.0); }, {.name = "inner"}) {
  clipped.set_grad(ones({1}, {.device = place}));
  start.record(current_stream(device));
  end.record(current_stream(device));
  end.synchronize();
  capture(other, [&] { x.add_(1.0); });
}

std::vector<ForbiddenCalls::Row> ForbiddenCalls::rows() {
  const std::string read_later =
      both(kNeedsValues, "keep them on the device, or read them after the replay");
  std::vector<Row> rows{
      {Forbidden::item, "item", read_later, [this](Where at) { (void)x.item(at); }},
      {Forbidden::to_vector, "to_vector", read_later,
       [this](Where at) { (void)x.to_vector<float>(at); }},
      {Forbidden::to_string, "to_string",
       both("printing needs the values on the host, and nothing has run yet",
            "print after the replay, or describe(tensor) for shape and dtype"),
       [this](Where at) { (void)x.to_string(at); }},
      {Forbidden::from_vector, "from_vector",
       both("a replay would not copy the host's values again",
            "make the tensor before the capture"),
       [this](Where at) { (void)Tensor::from_vector<float>({1}, {2.0f}, device, at); }},
      {Forbidden::grad_check, "grad_check",
       both(kNeedsValues, "check gradients outside of the capture"),
       [this](Where at) { (void)grad_check(square, {wide}, {}, at); }},
      {Forbidden::grad_grad_check, "grad_grad_check",
       both(kNeedsValues, "check gradients outside of the capture"),
       [this](Where at) { (void)grad_grad_check(square, {wide}, {}, at); }},
      {Forbidden::step_count, "step_count", both(kNeedsValues, "read it between replays"),
       [this](Where at) { (void)sgd.step_count(at); }},
      {Forbidden::synchronize, "synchronize", both(kNothingRuns, "end the capture first"),
       [this](Where at) { synchronize(device, at); }},
      {Forbidden::stream_synchronize, "stream.synchronize",
       both(kNothingRuns, "end the capture first"),
       [this](Where at) { current_stream(device).synchronize(at); }},
      {Forbidden::stream_query, "stream.query", both(kNothingRuns, "end the capture first"),
       [this](Where at) { (void)current_stream(device).query(at); }},
      {Forbidden::event_query, "event.query", both(kNothingRuns, "query it after the capture"),
       [this](Where at) { (void)start.query(at); }},
      {Forbidden::event_synchronize, "event.synchronize",
       both(kNothingRuns, "wait for it after the capture"),
       [this](Where at) { start.synchronize(at); }},
      {Forbidden::event_elapsed_ms, "event.elapsed_ms",
       both(kNothingRuns, "read the time after the capture"),
       [this](Where at) { (void)end.elapsed_ms(start, at); }},
      {Forbidden::manual_seed, "manual_seed", kDrawn,
       [this](Where at) { manual_seed(default_generator(device).seed() + 1, at); }},
      {Forbidden::generator_manual_seed, "generator.manual_seed", kDrawn,
       [this](Where at) { generator.manual_seed(generator.seed() + 1, at); }},
      {Forbidden::generator_set_state, "generator.set_state",
       both("a state saved outside of the capture would be the same in every replay",
            "set one that state() gave in a capture, or set it between replays"),
       [this](Where at) { generator.set_state({}, at); }},
      {Forbidden::set_learning_rate, "set_learning_rate", kSet,
       [this](Where at) { sgd.set_learning_rate(1.0, at); }},
      {Forbidden::set_momentum, "set_momentum", kSet,
       [this](Where at) { sgd.set_momentum(0.5, at); }},
      {Forbidden::set_weight_decay, "set_weight_decay", kSet,
       [this](Where at) { sgd.set_weight_decay(0.5, at); }},
      {Forbidden::set_betas, "set_betas", kSet, [this](Where at) { adam.set_betas(0.5, 0.5, at); }},
      {Forbidden::set_eps, "set_eps", kSet, [this](Where at) { adam.set_eps(0.5, at); }},
      {Forbidden::set_option, "set_option", kSet,
       [this](Where at) { sgd.set_option("momentum", 0.5, 0, at); }},
      {Forbidden::add_param_group, "add_param_group",
       both("every replay would leave the group out", "add it before the capture"),
       [this](Where at) { sgd.add_param_group({added}, {}, at); }},
      {Forbidden::clip_grad_norm, "clip_grad_norm_ with error_if_nonfinite",
       both("it needs the values on the host, and nothing has run yet",
            "leave error_if_nonfinite out, and read the norm after the replay"),
       [this](Where at) {
         (void)nn::clip_grad_norm_({clipped}, 1.0, {.error_if_nonfinite = true}, at);
       }},
      {Forbidden::scheduler_step, "scheduler.step",
       both("every replay would set the same rates again",
            "call it between replays, which see the change"),
       [this](Where at) { scheduler.step(at); }},
      {Forbidden::set_decay, "set_decay", kSet, [this](Where at) { ema.set_decay(0.5, at); }},
      {Forbidden::set_scale, "set_scale", kSet, [this](Where at) { scaler.set_scale(2.0, at); }},
      {Forbidden::load_state_dict, "load_state_dict",
       both("every replay would load the values again", "load before the capture"),
       [this](Where at) { layer.load_state_dict(layer.state_dict(), true, at); }},
      {Forbidden::module_to, "to",
       both("a replay would not move anything", "move the module before the capture"),
       [this](Where at) { layer.to(device, at); }},
      {Forbidden::data_loader, "data_loader",
       both("a replay would not fetch the next batch",
            "loop outside and copy each batch into the inputs of the graph"),
       [this](Where at) { (void)loader.begin(at); }},
      {Forbidden::pool_guard, "PoolGuard",
       both("a capture allocates from its own pool",
            "pass the pool to the capture: {.pool = pool}"),
       [this](Where at) { (void)PoolGuard(pool, at); }},
      {Forbidden::capture, "capture \"other\"",
       both("a capture cannot begin inside another", "end that capture first"),
       [this](Where at) {
         capture(
             other, [this] { x.add_(1.0); }, {}, at);
       }},
      {Forbidden::captured_step, "captured step \"inner\"",
       both("a captured step inside a capture is not supported",
            "call it after the capture, or capture its function itself"),
       [this](Where at) { step(at); }},
      {Forbidden::make_graphed_callables, "make_graphed_callables \"inner\"",
       both("a capture inside a capture is not supported",
            "graph the callables before the capture"),
       [this](Where at) {
         (void)make_graphed_callables([](const Tensor& a) { return a.clone(); }, x,
                                      {.name = "inner"}, at);
       }},
  };
  if (!device.is_host()) {
    const std::string why =
        both("a replay would not see the host's memory of that time",
             "copy before the capture or after the replay, or from a PinnedBuffer");
    rows.push_back({Forbidden::copy_across, "copy between host and device", why,
                    [this](Where at) { (void)x.to(Device::cpu(), at); }});
    rows.push_back({Forbidden::copy_across, "copy between host and device", why,
                    [this](Where at) { x.copy_(ones({1}), at); }});
    rows.push_back({Forbidden::wait_event_across, "stream.wait_event across kinds of device",
                    both("the host has to wait for it, and nothing runs before a replay",
                         "wait for it before the capture"),
                    [this](Where at) { default_stream(Device::cpu()).wait_event(start, at); }});
  }
  return rows;
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const CaptureError& error) {
    return error.what();
  }
  return {};
}

std::string place_of(const Where& where) {
  return detail::concat(where.file_name(), ":", where.line());
}

}  // namespace capstan::testing

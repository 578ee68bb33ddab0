// Training-step times on standard workloads, eager, with a graphed model and replayed as a whole,
// and times of small things. Prints
// one line of JSON for each figure: microseconds (median, least and greatest of 7 timed loops after
// 20 warm-up calls), wall clock around a loop that reads nothing back.
//
//   bench_steps [--device cpu|gpu] [--micro] [WORKLOAD...]     e.g. bench_steps mlp_b128

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "capstan.h"

using namespace capstan;

namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct Timing {
  double median = 0.0;
  double least = 0.0;
  double greatest = 0.0;
};

/// Microseconds per call of `body`; with `wait`, until the device has done the work.
Timing time_calls(Device device, int calls, bool wait, const std::function<void()>& body) {
  constexpr int kWarmup = 20;
  constexpr int kLoops = 7;
  for (int i = 0; i < kWarmup; ++i) body();
  std::vector<double> times;
  for (int loop = 0; loop < kLoops; ++loop) {
    synchronize(device);
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < calls; ++i) body();
    if (wait) synchronize(device);
    times.push_back(microseconds_since(start) / calls);
  }
  synchronize(device);
  std::sort(times.begin(), times.end());
  return {.median = times[kLoops / 2], .least = times.front(), .greatest = times.back()};
}

void print_figure(const char* kind, const std::string& name, const char* mode, Device device,
                  const Timing& timing) {
  std::printf(
      "{\"%s\": \"%s\", \"mode\": \"%s\", \"device\": \"%s\", \"unit\": \"us\", \"median\": %.3f, "
      "\"min\": %.3f, \"max\": %.3f}\n",
      kind, name.c_str(), mode, device.is_gpu() ? "gpu" : "cpu", timing.median, timing.least,
      timing.greatest);
  std::fflush(stdout);
}

/// A training step on inputs that stay on the device.
struct Workload {
  std::string name;
  Shape input;  // of one sample
  std::int64_t classes;
  std::int64_t batch;
  bool adam;  // else SGD with momentum
  std::function<void(nn::Sequential& model, Device device)> build;
};

/// Linear layers of these sizes with ReLU between.
auto linear_layers(std::vector<std::int64_t> sizes) {
  return [sizes = std::move(sizes)](nn::Sequential& model, Device device) {
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
      model.push_back(nn::Linear(sizes[i], sizes[i + 1], {.device = device}));
      if (i + 2 < sizes.size()) model.push_back(nn::ReLU());
    }
  };
}

void build_cnn(nn::Sequential& model, Device device) {
  std::int64_t channels = 1;
  for (const std::int64_t wider : {32, 64}) {
    model.push_back(nn::Conv2d(channels, wider, 3, {.padding = 1, .device = device}));
    model.push_back(nn::ReLU());
    model.push_back(nn::MaxPool2d(2));
    channels = wider;
  }
  model.push_back(nn::Flatten());
  linear_layers({3136, 128, 10})(model, device);
}

const std::vector<Workload>& workloads() {
  static const std::vector<Workload> list = [] {
    std::vector<std::int64_t> deep(20, 256);
    deep.push_back(10);
    return std::vector<Workload>{{.name = "mlp_b128",
                                  .input = {784},
                                  .classes = 10,
                                  .batch = 128,
                                  .adam = false,
                                  .build = linear_layers({784, 512, 512, 10})},
                                 {.name = "deepmlp_b32",
                                  .input = {256},
                                  .classes = 10,
                                  .batch = 32,
                                  .adam = true,
                                  .build = linear_layers(deep)},
                                 {.name = "cnn_b128",
                                  .input = {1, 28, 28},
                                  .classes = 10,
                                  .batch = 128,
                                  .adam = true,
                                  .build = build_cnn}};
  }();
  return list;
}

class TrainingStep {
 public:
  TrainingStep(const Workload& workload, Device device) {
    manual_seed(0);
    workload.build(model_, device);
    if (workload.adam) {
      optimizer_ =
          std::make_unique<nn::Adam>(model_.parameters(), nn::AdamOptions{.learning_rate = 1e-3});
    } else {
      optimizer_ = std::make_unique<nn::SGD>(
          model_.parameters(), nn::SGDOptions{.learning_rate = 0.01, .momentum = 0.9});
    }
    Shape shape{workload.batch};
    for (const std::int64_t size : workload.input) shape.push_back(size);
    inputs_ = randn(shape, {.device = device});
    labels_ = (rand({workload.batch}, {.device = device}) * workload.classes).to(DType::int64);
  }

  Tensor operator()(const Tensor& inputs, const Tensor& labels) {
    const Tensor loss = cross_entropy(model_(inputs), labels);
    optimizer_->zero_grad();
    loss.backward();
    optimizer_->step();
    return loss;
  }
  [[nodiscard]] nn::Sequential& model() { return model_; }
  [[nodiscard]] const Tensor& inputs() const { return inputs_; }
  [[nodiscard]] const Tensor& labels() const { return labels_; }

 private:
  nn::Sequential model_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  Tensor inputs_;
  Tensor labels_;
};

void run_workload(const Workload& workload, Device device) {
  const int calls = device.is_gpu() ? 100 : 20;
  TrainingStep eager(workload, device);
  print_figure("workload", workload.name, "eager", device, time_calls(device, calls, true, [&] {
                 (void)eager(eager.inputs(), eager.labels());
               }));

  TrainingStep graphed(workload, device);
  make_graphed_callables(graphed.model(), graphed.inputs());
  print_figure("workload", workload.name, "callables", device, time_calls(device, calls, true, [&] {
                 (void)graphed(graphed.inputs(), graphed.labels());
               }));

  TrainingStep body(workload, device);
  CapturedStep replayed(device,
                        [&](const Tensor& x, const Tensor& labels) { return body(x, labels); },
                        {.static_outputs = true});
  (void)replayed(body.inputs(), body.labels());
  // The graph's own inputs: resident, as the eager step's are.
  const std::vector<Tensor> resident = replayed.inputs();
  print_figure("workload", workload.name, "replayed", device,
               time_calls(device, calls, true, [&] { (void)replayed.run(resident); }));
}

void run_operations(Device device) {
  const auto print = [device](const char* name, const char* mode, const Timing& timing) {
    print_figure("micro", name, mode, device, timing);
  };
  const NoGradGuard no_grad;
  const Tensor a = randn({16}, {.device = device});
  const Tensor b = randn({16}, {.device = device});
  const Tensor square = randn({64, 64}, {.device = device});
  print("add_16", "host", time_calls(device, 1000, false, [&] { (void)(a + b); }));
  print("add_inplace_16", "host", time_calls(device, 1000, false, [&] { a.add_(b); }));
  print("matmul_64", "host",
        time_calls(device, 1000, false, [&] { (void)matmul(square, square); }));
  print("empty_release_1024", "host",
        time_calls(device, 5000, false, [&] { (void)empty({1024}, {.device = device}); }));
}

void run_layers(Device device) {
  constexpr int kLayers = 50;
  nn::Linear layer(64, 64, {.device = device});
  const Tensor x = randn({32, 64}, {.device = device});
  Timing timing = time_calls(device, 20, true, [&] {
    Tensor y = x;
    for (int i = 0; i < kLayers; ++i) y = relu(layer(y));
    sum(y).backward();
  });
  for (double* value : {&timing.median, &timing.least, &timing.greatest}) *value /= kLayers;
  print_figure("micro", "linear_relu_forward_backward_per_layer", "eager", device, timing);
}

void run_replays(Device device) {
  for (const int kernels : {1, 10, 100, 1000}) {
    const Tensor z = zeros({16}, {.device = device});
    Graph graph(device);
    const Clock::time_point start = Clock::now();
    capture(graph, [&] {
      for (int i = 0; i < kernels; ++i) z.add_(1.0);
    });
    const double captured = microseconds_since(start);
    const std::string name = "graph_" + std::to_string(kernels) + "_kernels";
    print_figure("micro", name, "capture", device, {captured, captured, captured});
    print_figure("micro", name, "replay", device,
                 time_calls(device, kernels < 1000 ? 100 : 20, true, [&] { graph.replay(); }));
    print_figure("micro", name, "replay_host", device,
                 time_calls(device, 20, false, [&] { graph.replay(); }));
  }
}

// What it costs a replay to know that 100 storages are still what was captured.
void run_checked_replays(Device device) {
  std::vector<Tensor> storages;
  for (int i = 0; i < 100; ++i) storages.push_back(ones({4}, {.device = device}));
  const Tensor other = ones({4}, {.device = device});
  const Tensor value = ones({4}, {.device = device});
  for (const ForeignMemory mode : {ForeignMemory::retain, ForeignMemory::check}) {
    Graph graph(device);
    Tensor joined;
    capture(graph, [&] { joined = cat(storages); }, {.foreign_memory = mode});
    const bool holds = mode == ForeignMemory::retain;
    print_figure("micro", "graph_100_storages", holds ? "held" : "checked", device,
                 time_calls(device, 100, false, [&] { graph.replay(); }));
    print_figure("micro", "graph_100_storages", holds ? "held_after_set_data" : "set_data", device,
                 time_calls(device, 100, false, [&] {
                   other.set_data(value);
                   if (holds) graph.replay();
                 }));
  }
}

// What a call costs beyond the launch and the copies: the host's time for a call of the graphed
// module, less that of the same replay and copies made by hand.
void run_graphed_call(Device device) {
  const Tensor x = randn({16}, {.device = device}).set_requires_grad();
  const auto body = [](const Tensor& a) { return a * 2.0; };
  GraphedCallable graphed = make_graphed_callables(body, x);
  const Tensor source = x.detach();
  const Tensor input = empty({16}, {.device = device});
  Tensor output;
  Graph graph(device);
  capture(graph, [&] { output = body(input); });
  print_figure("micro", "graphed_call", "host", device,
               time_calls(device, 1000, false, [&] { (void)graphed(x); }));
  print_figure("micro", "graphed_call", "by_hand", device, time_calls(device, 1000, false, [&] {
                 input.copy_(source);
                 graph.replay();
                 (void)output.clone();
               }));
}

int usage(const std::string& wrong) {
  std::fprintf(stderr,
               "bench_steps: %s; usage: bench_steps [--device cpu|gpu] [--micro] [WORKLOAD...]\n",
               wrong.c_str());
  return 2;
}

int run(int argc, char** argv) {
  Device device = gpu_available() ? Device::gpu() : Device::cpu();
  bool micro = false;
  std::vector<Workload> chosen;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--micro") {
      micro = true;
    } else if (argument == "--device" && i + 1 < argc) {
      device = Device::parse(argv[++i]);
    } else {
      const auto found = std::find_if(workloads().begin(), workloads().end(),
                                      [&](const Workload& w) { return w.name == argument; });
      if (found == workloads().end()) return usage("unknown option or workload " + argument);
      chosen.push_back(*found);
    }
  }
  if (micro) {
    run_operations(device);
    run_layers(device);
    run_replays(device);
    run_checked_replays(device);
    run_graphed_call(device);
  }
  if (chosen.empty() && !micro) chosen = workloads();
  for (const Workload& workload : chosen) run_workload(workload, device);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_steps: %s\n", error.what());
    return 1;
  }
}

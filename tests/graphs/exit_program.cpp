// Ends with graphs, captures and tensors in static and thread-local objects of the main thread and
// of one that has ended. Prints what is wrong; silence and status 0 mean that nothing is.
//
//   exit_program return|exit|capturing

#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <thread>

#include "capstan.h"

using namespace capstan;

namespace {

// Made before anything else of the library, so that it goes after the rest.
struct Holder {
  std::optional<Graph> graph;
  std::optional<CapturedStep> step;
  std::optional<Event> event;
  std::optional<Stream> stream;
  std::optional<PinnedBuffer> pinned;
  std::optional<CaptureScope> scope;
  Tensor x;
  Tensor y;

  void fill(Device device) {
    x = ones({1000}, {.device = device}).set_requires_grad();
    graph.emplace(device);
    capture(*graph, [&] { y = dropout(x.detach() + 1.0, 0.5); });
    graph->replay();
    step.emplace(device, [this] {
      x.set_grad(Tensor());
      (x * x).sum().backward();
      return x.grad();
    });
    (void)(*step)();
    stream.emplace(Stream::create(device));
    event.emplace(stream->record_event());
    pinned.emplace(device, 4096);
  }

  void begin_capture(Device device) {
    graph.emplace(device);
    scope.emplace(*graph);
    x.detach().add_(1.0);
  }
};

Holder static_holder;
thread_local Holder thread_holder;

Device best_device() { return gpu_available() ? Device::gpu() : Device::cpu(); }

}  // namespace

int main(int argc, char** argv) {
  const std::string way = argc == 2 ? argv[1] : "";
  static_holder.fill(best_device());
  thread_holder.fill(best_device());
  std::thread([] { thread_holder.fill(best_device()); }).join();
  static_holder.graph->replay();
  if (const double sum = (*static_holder.step)().sum().item(); sum != 2000.0) {
    std::cout << "the gradient sums to " << sum << ", expected 2000\n";
  }
  if (way == "exit") std::exit(0);
  if (way == "capturing") thread_holder.begin_capture(best_device());
  return 0;
}

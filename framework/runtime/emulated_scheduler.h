#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "framework/runtime/emulated_checker.h"
#include "framework/runtime/emulated_graph.h"

namespace capstan::emulated {

/// One record of an event: where it stands and what it stands for.
struct Mark : RefCounted {
  bool reached = false;
  int late_polls = 0;  // "not yet" answers to give after that
  std::chrono::steady_clock::time_point time{};
  Checker::Clock clock;
};

/// A piece of a stream's work.
struct Item {
  enum class Kind : std::uint8_t { call, record, wait, gate, graph };

  Kind kind = Kind::call;
  cpu::KernelCall call{};
  std::unique_ptr<std::byte[]> args{};    // of the call
  std::unique_ptr<std::byte[]> staged{};  // host memory that it reads
  Ref<Mark> mark{};                       // record, wait
  std::shared_ptr<bool> gate_is_open{};   // gate
  Ref<Plan> plan{};                       // graph
  std::vector<std::size_t> open{};        // graph, once begun
  std::vector<std::size_t> ready{};       // graph, once begun
  std::size_t left = 0;                   // graph: calls that have not run
};

/// What lies behind an emulated stream.
struct Queue {
  Device device;
  std::uint64_t stream = 0;  // its id, once it has been used
  std::deque<Item> items;
  bool destroyed = false;  // goes away when it is empty
  std::uint64_t rank = 0;  // of the current run
  Checker::Chain chain;
};

/// Runs queued work in an order that a seed chooses. Not thread-safe: the emulation's lock is held.
class Scheduler {
 public:
  void seed(std::uint64_t seed) { random_.seed(seed); }
  /// A number below `bound`.
  [[nodiscard]] std::uint64_t draw(std::uint64_t bound) { return random_() % bound; }

  [[nodiscard]] Queue* make_queue(Device device);
  void destroy(Queue* queue);
  [[nodiscard]] Queue* find(std::uint64_t stream) const;
  void push(Queue& queue, Item item) { queue.items.push_back(std::move(item)); }
  [[nodiscard]] bool idle() const;
  template <typename Body>
  void for_each_queue(const Body& body) {
    for (const auto& queue : queues_) body(*queue);
  }

  /// Runs what may run until `done`. @throws StateError if nothing may run before that, naming
  /// `what` and the stream whose gate is shut.
  void run_until(const std::function<bool()>& done, const std::string& what);
  /// Runs up to `steps` pieces of work.
  void run_some(std::uint64_t steps);
  void drain_device(Device device);

 private:
  struct Choice {
    Queue* queue;
    std::size_t ready;  // of a graph: which of its ready calls
  };
  void begin_run();
  /// False if nothing may run.
  bool step();
  void run(const Choice& choice);
  void collect();

  std::mt19937_64 random_{1};
  std::vector<std::unique_ptr<Queue>> queues_;
  std::vector<Choice> choices_;
  bool by_rank_ = false;
};

}  // namespace capstan::emulated

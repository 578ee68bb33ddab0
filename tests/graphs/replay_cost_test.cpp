#include <doctest/doctest.h>

#include <cstdlib>
#include <new>

#include "autograd/arithmetic.h"
#include "autograd/layout.h"
#include "autograd/loss.h"
#include "autograd/reduce.h"
#include "framework/core/counters.h"
#include "framework/random/generator.h"
#include "graphs/capture_scope.h"
#include "graphs/captured_step.h"
#include "nn/linear.h"
#include "nn/optim/sgd.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;

// Sanitizers bring their own operator new.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

constinit thread_local std::int64_t host_allocations = 0;
constinit thread_local std::int64_t failing_allocation = -1;  // the one to fail, as counted

void* counted_allocation(std::size_t bytes, std::size_t alignment) {
  if (++host_allocations == failing_allocation) throw std::bad_alloc();
  void* const memory =
      alignment == 0
          ? std::malloc(bytes)
          : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// Kept from being inlined, where compilers take free for the wrong partner of operator new.
[[gnu::noinline]] void release(void* memory) noexcept { std::free(memory); }

constexpr const char* kQueuesAllocate = "queues and checks of an emulated device allocate";

}  // namespace

void* operator new(std::size_t bytes) { return counted_allocation(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted_allocation(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

namespace {

struct Cost {
  std::int64_t host_allocations;
  std::int64_t allocations;
  std::int64_t device_allocations;
  std::int64_t dispatches;
  std::int64_t replays;
};

template <typename Body>
Cost cost_of(const Body& body) {
  const auto read = [] {
    const Counters& now = counters();
    return Cost{host_allocations, now.allocations, now.device_allocations, now.dispatches,
                now.replays};
  };
  const Cost before = read();
  body();
  const Cost after = read();
  return {after.host_allocations - before.host_allocations, after.allocations - before.allocations,
          after.device_allocations - before.device_allocations,
          after.dispatches - before.dispatches, after.replays - before.replays};
}

}  // namespace

TEST_SUITE("graphs/replay_cost") {
  TEST_CASE("a replay allocates nothing and dispatches nothing") {
    for_each_device(
        [](Device device) {
          const Tensor x = ones({100}, {.device = device});
          Tensor y;
          Graph graph(device);
          capture(graph, [&] {
            y = x;
            for (int i = 0; i < 50; ++i) y = dropout(y + 1.0, 0.5);
          });
          graph.replay();
          CHECK(cost_of([] { ::operator delete(::operator new(1)); }).host_allocations == 1);
          const Cost cost = cost_of([&] {
            for (int i = 0; i < 10; ++i) graph.replay();
          });
          CHECK(cost.host_allocations == 0);
          CHECK(cost.allocations == 0);
          CHECK(cost.device_allocations == 0);
          CHECK(cost.dispatches == 0);
          CHECK(cost.replays == 10);
        },
        kQueuesAllocate);
  }

  TEST_CASE("replays on alternating streams allocate nothing either") {
    for_each_device(
        [](Device device) {
          const Tensor x = ones({100}, {.device = device});
          Graph graph(device);
          capture(graph, [&] { x.add_(1.0); });
          const Stream side = Stream::create(device);
          const auto both = [&] {
            graph.replay();
            const StreamGuard guard(side);
            graph.replay();
          };
          both();
          CHECK(cost_of(both).host_allocations == 0);
        },
        kQueuesAllocate);
  }

  TEST_CASE("a step with static outputs costs a copy of each input and nothing else") {
    for_each_device(
        [](Device device) {
          Generator generator(3, device);
          nn::Linear layer(6, 4, {.device = device, .generator = &generator});
          nn::SGD sgd(layer.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
          CapturedStep step(device,
                            [&](const Tensor& x, const Tensor& y) {
                              sgd.zero_grad();
                              const Tensor loss = cross_entropy(dropout(layer(x), 0.1), y);
                              loss.backward();
                              sgd.step();
                              return loss;
                            },
                            {.static_outputs = true});
          const Tensor x = ones({8, 6}, {.device = device});
          const Tensor y = ones({8}, {.dtype = DType::int64, .device = device});
          Tensor loss = step(x, y);
          const Cost copying = cost_of([&] {
            for (int i = 0; i < 10; ++i) loss = step(x, y);
          });
          CHECK(copying.host_allocations == 0);
          CHECK(copying.allocations == 0);
          CHECK(copying.device_allocations == 0);
          CHECK(copying.dispatches == 20);
          CHECK(copying.replays == 10);

          const Tensor own_x = step.inputs()[0];
          const Tensor own_y = step.inputs()[1];
          const Cost in_place = cost_of([&] {
            for (int i = 0; i < 10; ++i) loss = step(own_x, own_y);
          });
          CHECK(in_place.host_allocations == 0);
          CHECK(in_place.dispatches == 0);
          CHECK(in_place.replays == 10);
        },
        kQueuesAllocate);
  }

  TEST_CASE("F1: whichever allocation of a capture fails, nothing is left behind") {
    const Device device = Device::cpu();
    const Tensor x = ones({16}, {.device = device});
    const Generator generator = default_generator(device);
    const GeneratorState state = generator.state();
    const Stream before = current_stream(device);
    const std::size_t pools = allocator(device).stats().pools.size();
    std::int64_t failures = 0;
    for (bool succeeded = false; !succeeded;) {
      Graph graph(device);
      std::string last;
      failing_allocation = host_allocations + ++failures;
      try {
        capture(graph, [&] { x.copy_(dropout(x + 1.0, 0.5)); });
        succeeded = failing_allocation > host_allocations;
      } catch (const std::bad_alloc&) {
        CHECK_FALSE(graph.is_ready());
      }
      failing_allocation = -1;
      REQUIRE(failures < 1000);
      REQUIRE(current_stream(device) == before);
      REQUIRE(detail::active_captures() == 0);
      REQUIRE(generator.state() == state);
      if (!graph.is_ready()) REQUIRE(allocator(device).stats().pools.size() == pools);
    }
    CHECK(failures > 20);
    check_close(x, std::vector<double>(16, 1.0), 0.0);
  }

  TEST_CASE("whichever allocation of a step's first call fails, nothing has changed") {
    const Device device = Device::cpu();
    const Tensor state = full({8}, 4.0, {.device = device});
    const Tensor p = ones({8}, {.device = device}).set_requires_grad();
    const Tensor x = ones({8}, {.device = device});
    const auto body = [&](const Tensor& input) {
      p.set_grad(Tensor());
      state.add_(1.0);
      (p * input).backward(input);
      return state;
    };
    std::int64_t failures = 0;
    for (bool reached = true; reached;) {
      p.set_grad(Tensor());
      state.fill_(4.0);
      CapturedStep step(device, body);
      failing_allocation = host_allocations + ++failures;
      bool succeeded = true;
      try {
        (void)step(x);
      } catch (const std::bad_alloc&) {
        succeeded = false;
      }
      reached = failing_allocation <= host_allocations;
      failing_allocation = -1;
      REQUIRE(failures < 5000);
      // Behind the replay there is only the copy of the result to fail.
      const bool ran = step.stats().replays == 1;
      REQUIRE((ran || !succeeded));
      REQUIRE(p.grad().defined() == ran);
      REQUIRE(state.max().item() == (ran ? 5.0 : 4.0));
    }
    CHECK(failures > 50);
    CHECK(state.max().item() == 5.0);
    check_close(p.grad(), std::vector<double>(8, 1.0), 0.0);
  }
}

#endif

#include "graphs/captured_step.h"

#include <stdexcept>

#include "autograd/arithmetic.h"
#include "autograd/grad_mode.h"
#include "autograd/layout.h"
#include "autograd/reduce.h"
#include "framework/random/generator.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;
using doctest::Contains;

namespace {

Tensor filled(double value, std::int64_t rows, Device device) {
  return full({rows, 3}, value, {.device = device});
}

std::int64_t reserved(Device device) {
  (void)allocator(device).empty_cache();
  return allocator(device).stats().total.reserved_bytes;
}

}  // namespace

TEST_SUITE("graphs/captured_step") {
  TEST_CASE("records once and replays from then on") {
    for_each_device([](Device device) {
      int calls = 0;
      CapturedStep step(device, [&](const Tensor& x) {
        ++calls;
        return x * 2.0 + 1.0;
      });
      for (int i = 0; i < 5; ++i) {
        check_close(step(full({2}, i, {.device = device})), {2.0 * i + 1.0, 2.0 * i + 1.0}, 0.0);
      }
      CHECK(calls == 2);  // one to warm up, one to capture
      CHECK(step.stats().captures == 1);
      CHECK(step.stats().replays == 5);
      CHECK(step.graph().replay_count() == 5);
    });
  }

  TEST_CASE("takes none to three tensors, and vectors") {
    for_each_device([](Device device) {
      const Tensor a = full({2}, 1.0, {.device = device});
      const Tensor b = full({2}, 10.0, {.device = device});
      const Tensor c = full({2}, 100.0, {.device = device});
      const Tensor total = zeros({2}, {.device = device});
      CapturedStep none(device, [&] { total.add_(1.0); });
      CHECK_FALSE(none().defined());
      CHECK_FALSE(none().defined());
      check_close(total, {2, 2}, 0.0);
      CapturedStep two(device, [](const Tensor& x, const Tensor& y) { return x + y; });
      check_close(two(a, b), {11, 11}, 0.0);
      CapturedStep three(
          device, [](const Tensor& x, const Tensor& y, const Tensor& z) { return x + y + z; });
      check_close(three(a, b, c), {111, 111}, 0.0);
      CapturedStep many(device, [](const std::vector<Tensor>& x) {
        return std::vector<Tensor>{x[0] * x[3], Tensor(), x[1] - x[2]};
      });
      const std::vector<Tensor> results = many.run({a, b, c, b});
      REQUIRE(results.size() == 3);
      check_close(results[0], {10, 10}, 0.0);
      CHECK_FALSE(results[1].defined());
      check_close(results[2], {-90, -90}, 0.0);
      CHECK_THROWS_WITH_AS(two(a), Contains("the function takes 2 tensors, got 1"), ValueError);
    });
  }

  TEST_CASE("I1: results are the caller's to keep, and stay with static_outputs the graph's") {
    for_each_device([](Device device) {
      const auto function = [](const Tensor& x) { return x + 1.0; };
      CapturedStep safe(device, function);
      const Tensor a = safe(full({1}, 1.0, {.device = device}));
      const Tensor b = safe(full({1}, 2.0, {.device = device}));
      CHECK(a.item() == 2.0);
      CHECK(b.item() == 3.0);
      CapturedStep fast(device, function, {.static_outputs = true});
      const Tensor c = fast(full({1}, 1.0, {.device = device}));
      const Tensor d = fast(full({1}, 2.0, {.device = device}));
      CHECK(c.is_same(d));
      CHECK(d.item() == 3.0);
    });
  }

  TEST_CASE("an output that is an input or a view of one is right as well") {
    for_each_device([](Device device) {
      CapturedStep step(device, [](const std::vector<Tensor>& x) {
        return std::vector<Tensor>{x[0], x[0].slice(0, 1, 2), x[0] + 1.0};
      });
      const auto first = step.run({Tensor::from_vector<float>({2}, {1.0f, 2.0f}, device)});
      const auto second = step.run({Tensor::from_vector<float>({2}, {3.0f, 4.0f}, device)});
      check_close(first[0], {1, 2}, 0.0);
      check_close(first[1], {2}, 0.0);
      check_close(second[0], {3, 4}, 0.0);
      check_close(second[1], {4}, 0.0);
    });
  }

  TEST_CASE("another shape or dtype gets a graph of its own in the same pool") {
    for_each_device([](Device device) {
      CapturedStep step(device, [](const Tensor& x) { return (x * 2).sum(); });
      CHECK(step(filled(1.0, 4, device)).item() == 24.0);
      const std::uint64_t pool = step.graph().pool().id();
      CHECK(step(filled(1.0, 3, device)).item() == 18.0);
      CHECK(step.graph().pool().id() == pool);
      CHECK(step(full({4, 3}, 1, {.dtype = DType::float64, .device = device})).dtype() ==
            DType::float64);
      CHECK(step(filled(2.0, 4, device)).item() == 48.0);
      CHECK(step.stats().captures == 3);
      CHECK(step.pool().id() == pool);
    });
  }

  TEST_CASE("R1: strides do not matter") {
    for_each_device([](Device device) {
      CapturedStep step(device, [](const Tensor& x) { return x + 0.0; });
      const Tensor x = random_tensor({3, 3}, 1, DType::float32, device);
      check_identical(step(x), x);
      check_identical(step(x.t()), x.t().contiguous());
      CHECK(step.stats().captures == 1);
      check_identical(step(x.slice(0, 0, 1)), x.slice(0, 0, 1));
      CHECK(step.stats().captures == 2);
    });
  }

  TEST_CASE("F7: the least recently used graph goes first, and memory stays bounded") {
    for_each_device([](Device device) {
      CapturedStep step(device, [](const Tensor& x) { return (x * 2).sum(); }, {.max_graphs = 3});
      // Rows of each call, and how many captures and evictions there were after it.
      const std::int64_t calls[][3] = {{1, 1, 0}, {2, 2, 0}, {3, 3, 0}, {1, 3, 0}, {4, 4, 1},
                                       {1, 4, 1}, {3, 4, 1}, {2, 5, 2}, {3, 5, 2}, {1, 5, 2}};
      for (const auto& [rows, captures, evictions] : calls) {
        CAPTURE(rows);
        CHECK(step(filled(1.0, rows, device)).item() == 6.0 * static_cast<double>(rows));
        CHECK(step.stats().captures == captures);
        CHECK(step.stats().evictions == evictions);
      }

      std::int64_t plateau = 0;
      for (int round = 0; round < 3; ++round) {
        for (std::int64_t rows = 1; rows <= 20; ++rows) {
          REQUIRE(step(filled(1.0, rows, device)).item() == 6.0 * static_cast<double>(rows));
        }
        if (round == 0) plateau = reserved(device);
      }
      CHECK(reserved(device) == plateau);
    });
  }

  TEST_CASE("reset gives all memory back, and the step records anew") {
    for_each_device([](Device device) {
      const std::int64_t baseline = reserved(device);
      const auto function = [](const Tensor& x) { return (x * 2).sum(); };
      CapturedStep step(device, function, {.name = "resettable"});
      CHECK_THROWS_WITH_AS((void)step.graph(), Contains("resettable: graph needs"), StateError);
      const auto input = [&] { return full({1 << 20}, 1.0, {.device = device}); };
      (void)step(input());
      CHECK(reserved(device) > baseline);
      step.reset();
      CHECK(reserved(device) == baseline);
      CHECK_THROWS_AS((void)step.graph(), StateError);
      CHECK(step(input()).item() == 2097152.0);
      CHECK(step.stats().captures == 2);
    });
  }

  TEST_CASE("bad inputs and options are refused before anything happens") {
    const auto function = [](const Tensor& x) { return x + 1.0; };
    CHECK_THROWS_WITH_AS((CapturedStep{Device::cpu(), function, {.warmup = -1}}),
                         Contains("step: warmup must be at least 0, got -1"), ValueError);
    CHECK_THROWS_WITH_AS((CapturedStep{Device::cpu(), function, {.max_graphs = 0}}),
                         Contains("max_graphs must be at least 1"), ValueError);
    CapturedStep step(Device::cpu(), function, {.name = "s"});
    CHECK_THROWS_WITH_AS(step(Tensor()), Contains("s: input 0 is undefined"), ValueError);
    const Tensor x = ones({2}).set_requires_grad();
    CHECK_THROWS_WITH_AS(step(x), Contains("s: input 0 (float32[2] on cpu) requires a gradient"),
                         GradError);
    CHECK(step.stats().captures == 0);
    const NoGradGuard no_grad;
    check_close(step(x), {2, 2}, 0.0);
  }

  TEST_CASE("an input on another device is refused") {
    if (!needs_gpu()) return;
    CapturedStep step(Device::gpu(), [](const Tensor& x) { return x + 1.0; });
    CHECK_THROWS_WITH_AS(step(ones({2})), Contains("the step runs on gpu:0"), DeviceError);
  }

  TEST_CASE("A2: a function that writes its input is refused with the line, and leaves no trace") {
    for_each_device([](Device device) {
      CapturedStep step(device, [](const Tensor& x) {
        x.add_(1.0);
        return x * 2.0;
      });
      const Tensor x = full({4}, 5.0, {.device = device});
      CHECK_THROWS_WITH_AS(step(x), Contains("step: add writes input 0"), CaptureError);
      CHECK_THROWS_WITH_AS(step(x), Contains("captured_step_test.cpp:"), CaptureError);
      check_close(x, {5, 5, 5, 5}, 0.0);
    });
  }

  TEST_CASE("C3: warming up and capturing advance no state of the function") {
    for_each_device([](Device device) {
      for (const int warmup : {0, 1, 3}) {
        const Tensor h = full({2}, 8.0, {.device = device});
        CapturedStep step(device, [&](const Tensor& x) { h.mul_(0.5).add_(x); },
                          {.warmup = warmup});
        (void)step(ones({2}, {.device = device}));
        check_close(h, {5, 5}, 0.0);
        (void)step(ones({2}, {.device = device}));
        check_close(h, {3.5, 3.5}, 0.0);
      }
    });
  }

  TEST_CASE("D1: replays draw the numbers that eager runs would, and leave the generator there") {
    for_each_device([](Device device) {
      const Generator generator = default_generator(device);
      const Tensor x = ones({1024}, {.device = device});
      const auto masks_of = [&](std::uint64_t seed, const std::function<Tensor()>& draw) {
        generator.manual_seed(seed);
        std::vector<Tensor> masks;
        for (int i = 0; i < 3; ++i) masks.push_back(draw());
        return masks;
      };
      const auto eager = masks_of(0, [&] { return dropout(x, 0.5); });
      const GeneratorState after = generator.state();
      CapturedStep step(device, [](const Tensor& y) { return dropout(y, 0.5); });
      const auto replayed = masks_of(0, [&] { return step(x); });
      CHECK(generator.state() == after);
      for (std::size_t i = 0; i < 3; ++i) {
        check_identical(replayed[i], eager[i]);
        CHECK_FALSE(identical(replayed[i], replayed[(i + 1) % 3]));
      }
      const auto other = masks_of(1, [&] { return step(x); });
      CHECK_FALSE(identical(other[0], eager[0]));
      check_identical(masks_of(0, [&] { return step(x); })[2], eager[2]);
      (void)dropout(x, 0.5);
      const GeneratorState between = generator.state();
      CHECK(between.offset == after.offset + after.offset / 3);
      CHECK(step.stats().captures == 1);
    });
  }

  TEST_CASE("a failing warm-up or capture changes nothing, and the call can be repeated") {
    for_each_device([](Device device) {
      const Tensor state = full({1000}, 8.0, {.device = device});
      const Tensor p = ones({1000}, {.device = device}).set_requires_grad();
      p.set_grad(full({1000}, 7.0, {.device = device}));
      const Tensor grad = p.grad();
      const Generator generator = default_generator(device);
      const Stream before = current_stream(device);
      int calls = 0;
      int failing_call = 0;
      CapturedStep step(device, [&](const Tensor& x) {
        state.add_(1.0);
        p.set_grad(Tensor());
        (p * dropout(x, 0.5)).sum().backward();
        if (++calls == failing_call) throw std::runtime_error("user 42");
        return p.grad();
      });
      const Tensor x = ones({1000}, {.device = device});
      const GeneratorState start = generator.state();
      const auto fail = [&](int call) {
        calls = 0;
        failing_call = call;
        CHECK_THROWS_WITH_AS(step(x), "user 42", std::runtime_error);
      };
      fail(2);
      const std::int64_t baseline = reserved(device);
      for (int round = 0; round < 20; ++round) {
        fail(1 + round % 2);
        REQUIRE(reserved(device) == baseline);
        REQUIRE(step.pool().stats().reserved_bytes == 0);
      }
      CHECK(p.grad().is_same(grad));
      CHECK(grad.max().item() == 7.0);
      CHECK(state.max().item() == 8.0);
      CHECK(generator.state() == start);
      CHECK(current_stream(device) == before);
      CHECK(step.stats().captures == 0);

      failing_call = 0;
      const Tensor replayed = step(x);
      CHECK(state.max().item() == 9.0);
      generator.set_state(start);
      check_identical(replayed, dropout(x, 0.5));
    });
  }

  TEST_CASE("K2: a host read in the function is refused by name and line") {
    for_each_device([](Device device) {
      CapturedStep step(device, [](const Tensor& x) { return x * x.sum().item(); }, {.warmup = 1});
      const Tensor x = ones({2}, {.device = device});
      CHECK_THROWS_WITH_AS(step(x), Contains("item: not possible while"), CaptureError);
      CHECK_THROWS_WITH_AS(step(x), Contains("captured_step_test.cpp:"), CaptureError);
    });
  }

  TEST_CASE("a step inside a capture is refused") {
    for_each_device([](Device device) {
      CapturedStep inner(device, [](const Tensor& x) { return x + 1.0; }, {.name = "inner"});
      CapturedStep outer(device, [&](const Tensor& x) { return inner(x); });
      CHECK_THROWS_WITH_AS(outer(ones({2}, {.device = device})),
                           Contains("captured step \"inner\": not possible while"), CaptureError);
    });
  }

  TEST_CASE("the grad mode is the caller's and part of the signature") {
    for_each_device([](Device device) {
      const Tensor w = ones({2}, {.device = device}).set_requires_grad();
      bool recorded = false;
      CapturedStep step(device, [&](const Tensor& x) {
        const Tensor y = x * w;
        recorded = y.requires_grad();
        return y;
      });
      const Tensor x = ones({2}, {.device = device});
      CHECK_FALSE(step(x).requires_grad());
      CHECK(recorded);
      const NoGradGuard no_grad;
      (void)step(x);
      CHECK_FALSE(recorded);
      CHECK(step.stats().captures == 2);
    });
  }

  TEST_CASE("H2: a tensor given other memory leads to a new recording") {
    for_each_device([](Device device) {
      const Tensor w = full({2}, 1.0, {.device = device});
      CapturedStep step(device, [&](const Tensor& x) { return x * w; });
      const Tensor x = ones({2}, {.device = device});
      check_close(step(x), {1, 1}, 0.0);
      w.fill_(2.0);
      check_close(step(x), {2, 2}, 0.0);
      CHECK(step.stats().captures == 1);
      w.set_data(full({2}, 3.0, {.device = device}));
      check_close(step(x), {3, 3}, 0.0);
      CHECK(step.stats().captures == 2);
    });
  }

  TEST_CASE("calls from different streams follow one another") {
    for_each_device([](Device device) {
      const Tensor total = zeros({1 << 18}, {.device = device});
      CapturedStep step(device, [&](const Tensor& x) { total.copy_((total + x) + x); });
      const Stream streams[] = {Stream::create(device), Stream::create(device)};
      for (const Stream& stream : streams) stream.wait_stream(current_stream(device));
      double want = 0.0;
      for (int i = 0; i < 40; ++i) {
        const StreamGuard guard(streams[i % 2]);
        (void)step(full({1 << 18}, i, {.device = device}));
        want += 2.0 * i;
      }
      for (const Stream& stream : streams) current_stream(device).wait_stream(stream);
      CHECK(total.max().item() == want);
      CHECK((-total).max().item() == -want);
    });
  }
}

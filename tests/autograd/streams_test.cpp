#include <doctest/doctest.h>

#include "autograd/arithmetic.h"
#include "autograd/engine.h"
#include "framework/memory/caching_allocator.h"
#include "framework/runtime/capture_session.h"
#include "framework/runtime/emulated_checks.h"
#include "framework/runtime/stream.h"
#include "framework/tensor/factory.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;
using testing::check_identical;
using testing::for_each_device;
using testing::random_tensor;
using testing::tolerance_for;

/// Notes on which stream the gradient of a tensor arrives.
void note_stream(const Tensor& tensor, std::uint64_t& id) {
  (void)tensor.register_hook([&id](const Tensor& grad) {
    id = current_stream(grad.device()).id();
    return Tensor();
  });
}

TEST_SUITE("autograd/streams") {
  TEST_CASE("backward runs on the stream of the forward, and the caller's stream waits for it") {
    for_each_device([](Device device) {
      const Stream side = Stream::create(device);
      const Stream caller = current_stream(device);
      const Tensor x = ones({256, 257}, {.device = device}).set_requires_grad();
      std::uint64_t stream_of_y = 0;
      std::uint64_t stream_of_x = 0;
      note_stream(x, stream_of_x);
      Tensor y;
      side.wait_stream(caller);
      {
        const StreamGuard guard(side);
        y = x * 2.0;
        note_stream(y, stream_of_y);
      }
      caller.wait_stream(side);
      (y * y).sum().backward();
      CHECK(stream_of_y == side.id());
      CHECK(stream_of_x == caller.id());
      CHECK(current_stream(device) == caller);
      check_close(x.grad(), full({256, 257}, 8.0, {.device = device}),
                  tolerance_for(DType::float32, device));
    });
  }

  TEST_CASE("branches on several streams add up, many times over") {
    for_each_device([](Device device) {
      const Stream caller = current_stream(device);
      const Stream streams[] = {Stream::create(device), Stream::create(device)};
      const Tensor x = random_tensor({512, 513}, 1, DType::float32, device).set_requires_grad();
      const Tensor w = random_tensor({512, 513}, 2, DType::float32, device).set_requires_grad();
      ((x * w).sum() + (x * x * w).sum()).backward();
      const Tensor want_x = x.grad();
      const Tensor want_w = w.grad();
      for (int round = 0; round < 10; ++round) {
        x.set_grad(Tensor());
        w.set_grad(Tensor());
        Tensor branches[2];
        for (int i = 0; i < 2; ++i) {
          streams[i].wait_stream(caller);
          const StreamGuard guard(streams[i]);
          branches[i] = i == 0 ? (x * w).sum() : (x * x * w).sum();
        }
        for (const Stream& stream : streams) caller.wait_stream(stream);
        (branches[0] + branches[1]).backward();
        check_close(x.grad(), want_x, tolerance_for(DType::float32, device));
        check_close(w.grad(), want_w, tolerance_for(DType::float32, device));
      }
    });
  }

  TEST_CASE("grad hands out memory that other streams are done with") {
    for_each_device([](Device device) {
      const Stream side = Stream::create(device);
      const Tensor x = full({1000, 1001}, 3.0, {.device = device}).set_requires_grad();
      side.wait_stream(current_stream(device));
      Tensor y;
      {
        const StreamGuard guard(side);
        y = (x * x).sum();
      }
      current_stream(device).wait_stream(side);
      const Tensor gradient = grad({y}, {x})[0];
      {
        const StreamGuard guard(side);
        for (int i = 0; i < 4; ++i) (void)full({1000, 1001}, -1.0, {.device = device});
      }
      check_close(gradient, full({1000, 1001}, 6.0, {.device = device}),
                  tolerance_for(DType::float32, device));
    });
  }

  TEST_CASE("J1: a capture does not meet the stream of the warm-up") {
    for_each_device([](Device device) {
      const Tensor x = random_tensor({8, 9}, 1, DType::float32, device);
      const Tensor w = random_tensor({8, 9}, 2, DType::float32, device).set_requires_grad();
      const Tensor unused = ones({3}, {.device = device}).set_requires_grad();
      std::uint64_t stream_of_product = 0;

      // Warm-up on the default stream; its graph stays alive and is captured, too.
      const Tensor old_product = w * x;
      const Tensor old_loss = (old_product * old_product).sum() + unused.sum() * 0.0;
      old_loss.backward({}, {.retain_graph = true});
      const Tensor want = w.grad() + w.grad();
      w.set_grad(Tensor());
      unused.set_grad(Tensor());
      note_stream(old_product, stream_of_product);

      const GraphPool pool = graph_pool_handle(device);
      const Stream side = Stream::create(device);
      side.wait_stream(current_stream(device));
      CaptureResult result;
      {
        const StreamGuard guard(side);
        const Ref<CaptureSession> session = CaptureSession::begin(side, {.pool = pool.id()});
        const Tensor product = w * x;
        (product * product).sum().backward();
        old_loss.backward({}, {.retain_graph = true});
        result = session->finish();
      }
      CHECK(stream_of_product == side.id());
      const std::unique_ptr<NativeExec> exec = result.graph->instantiate();
      detail::check_replay(result.recording, "warm", side.state());
      exec->launch(side.state());
      side.synchronize();
      check_close(w.grad(), want, tolerance_for(DType::float32, device));
    });
  }

  TEST_CASE("J1: a graph recorded in a capture runs outside of it on the caller's stream") {
    const Device device = Device::cpu();
    const GraphPool pool = graph_pool_handle(device);
    const Stream side = Stream::create(device);
    const Tensor w = ones({2}).set_requires_grad();
    std::uint64_t stream_of_y = 0;
    const Ref<CaptureSession> session = CaptureSession::begin(side, {.pool = pool.id()});
    Tensor y;
    {
      const StreamGuard guard(side);
      y = w * 3.0;
      note_stream(y, stream_of_y);
    }
    y.backward(ones({2}));
    CHECK(stream_of_y == default_stream(device).id());
    check_close(w.grad(), {3, 3}, 0.0);
    CHECK(session->operation_count() == 1);
    session->abandon();
  }

  TEST_CASE("an error on a side stream puts the caller's stream back") {
    const Device device = Device::cpu();
    const Stream side = Stream::create(device);
    const Tensor x = ones({2}).set_requires_grad();
    Tensor y;
    {
      const StreamGuard guard(side);
      y = x * 2.0;
      (void)y.register_hook([](const Tensor&) -> Tensor { throw ValueError("hook: no"); });
    }
    CHECK_THROWS_AS((y * y).sum().backward(), ValueError);
    CHECK(current_stream(device) == default_stream(device));
    CHECK_FALSE(x.grad().defined());
  }
}

}  // namespace
}  // namespace capstan

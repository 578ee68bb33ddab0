#include "autograd/checkpoint.h"

#include <cmath>
#include <vector>

#include "autograd/arithmetic.h"
#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/layout.h"
#include "autograd/math.h"
#include "autograd/reduce.h"
#include "framework/memory/caching_allocator.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;
using doctest::Contains;

namespace {

Tensor leaf(const Shape& shape, std::uint64_t seed, Device device) {
  return random_tensor(shape, seed, DType::float64, device).set_requires_grad();
}

}  // namespace

TEST_SUITE("autograd/checkpoint") {
  TEST_CASE("gradients go to inputs and to the leaves that the function reaches, as without it") {
    for_each_device([](Device device) {
      const Tensor x = leaf({3, 4}, 1, device);
      const Tensor w = leaf({3, 4}, 2, device);
      const auto body = [&](const Tensor& y) { return tanh(y * w + y) * w; };
      (x * body(x * 2.0)).sum().backward();
      const Tensor want_x = x.grad();
      const Tensor want_w = w.grad();
      x.set_grad({});
      w.set_grad({});

      int calls = 0;
      const Tensor y = checkpoint(
          [&](const Tensor& input) {
            ++calls;
            return body(input);
          },
          x * 2.0);
      CHECK(calls == 1);
      (x * y).sum().backward();
      CHECK(calls == 2);
      check_close(x.grad(), want_x, 1e-14);
      check_close(w.grad(), want_w, 1e-14);
    });
  }

  TEST_CASE("grad gives the same, and a history that can be differentiated again") {
    const Tensor x = leaf({5}, 3, Device::cpu());
    const Tensor w = leaf({5}, 4, Device::cpu());
    const auto second = [&](const auto& apply) {
      const Tensor b = x * x;  // an input that another input leads to
      const Tensor y = apply(std::vector<Tensor>{x, b});
      const std::vector<Tensor> first = grad({(y * y).sum()}, {x, w}, {}, {.create_graph = true});
      return grad({(first[0] * first[0] * first[1]).sum()}, {x, w}, {}, {});
    };
    const auto body = [&](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{in[0] * in[1] * w + exp(in[1])};
    };
    const auto want = second([&](const std::vector<Tensor>& in) { return body(in)[0]; });
    const auto got = second([&](const std::vector<Tensor>& in) { return checkpoint(body, in)[0]; });
    for (std::size_t i = 0; i < 2; ++i) check_close(got[i], want[i], 1e-12);
    CHECK(std::abs(want[0].sum().item()) > 1e-3);
  }

  TEST_CASE("checkpoints nest, and take several inputs and outputs") {
    const Tensor x = leaf({4}, 5, Device::cpu());
    const Tensor w = leaf({4}, 6, Device::cpu());
    const auto inner = [&](const Tensor& y) { return dropout(y, 0.5) * w; };
    const auto run = [&](bool checkpoints) {
      manual_seed(3);
      x.set_grad({});
      w.set_grad({});
      const auto outer = [&](const std::vector<Tensor>& in) {
        const Tensor z = checkpoints ? checkpoint(inner, in[0]) : inner(in[0]);
        return std::vector<Tensor>{z + in[1], dropout(z, 0.5), in[1]};
      };
      const std::vector<Tensor> in{x * 3.0, ones({4}, {.dtype = DType::float64})};
      const std::vector<Tensor> out = checkpoints ? checkpoint(outer, in) : outer(in);
      CHECK_FALSE(out[2].requires_grad());
      ((out[0] * out[1]).sum() + dropout(w, 0.5).sum()).backward();
      return std::vector<Tensor>{x.grad().clone(), w.grad().clone()};
    };
    const auto want = run(false);
    const auto got = run(true);
    for (std::size_t i = 0; i < 2; ++i) check_close(got[i], want[i], 1e-14);
  }

  TEST_CASE("the second call draws the same numbers, unless told not to") {
    for_each_device([](Device device) {
      const Tensor x = ones({1000}, {.device = device});
      x.set_requires_grad();
      const Generator generator = default_generator(device);
      manual_seed(11);
      const Tensor y = checkpoint([](const Tensor& in) { return dropout(in, 0.5); }, x);
      (void)dropout(x, 0.5);
      const GeneratorState before = generator.state();
      y.sum().backward();
      CHECK(generator.state() == before);
      check_identical(x.grad(), y.detach());

      x.set_grad({});
      const Tensor z = checkpoint([](const Tensor& in) { return dropout(in, 0.5); }, x,
                                  {.preserve_rng_state = false});
      z.sum().backward();
      CHECK_FALSE(identical(x.grad(), z.detach()));
    });
  }

  TEST_CASE("hooks run once, with the complete gradient") {
    const Tensor w = leaf({2}, 7, Device::cpu());
    const Tensor x = leaf({2}, 8, Device::cpu());
    int calls = 0;
    w.register_hook([&](const Tensor& gradient) {
      ++calls;
      return gradient * 2.0;
    });
    const Tensor y = checkpoint([&](const Tensor& in) { return in * w; }, x);
    (y + w).sum().backward();
    CHECK(calls == 1);
    check_close(w.grad(), (x.detach() + 1.0) * 2.0, 1e-14);
  }

  TEST_CASE("it keeps the inputs alone") {
    const Device device = Device::cpu();
    const auto used = [&] { return allocator(device).stats().total.allocated_bytes; };
    const Tensor x = leaf({1 << 16}, 9, device);
    const std::int64_t before = used();
    const Tensor y = checkpoint([](const Tensor& in) { return tanh(exp(tanh(exp(in)))); }, x);
    CHECK(used() - before == (std::int64_t{1} << 16) * 8);
  }

  TEST_CASE("without recording it is the function, and outputs without gradient stay so") {
    const Tensor x = leaf({2}, 10, Device::cpu());
    {
      const NoGradGuard guard;
      CHECK_FALSE(checkpoint([](const Tensor& in) { return in * 2.0; }, x).requires_grad());
    }
    CHECK_FALSE(checkpoint([](const Tensor& in) { return in.detach() * 2.0; }, x).requires_grad());
  }

  TEST_CASE("a result from before that is no input is refused, naming its operation") {
    const Tensor x = leaf({2}, 11, Device::cpu());
    const Tensor hidden = exp(x);
    CHECK_THROWS_WITH_AS((void)checkpoint([&](const Tensor& in) { return in * hidden; }, x),
                         Contains("checkpoint: exp (recorded at"), GradError);
  }

  TEST_CASE("a changed input, or another result at the second call, is an error") {
    const Tensor x = leaf({2}, 12, Device::cpu());
    const Tensor mid = x * 1.0;
    const Tensor y = checkpoint([](const Tensor& in) { return in * in; }, mid);
    mid.add_(1.0);
    CHECK_THROWS_AS(y.sum().backward(), GradError);

    const GeneratorState before = default_generator(Device::cpu()).state();
    int calls = 0;
    const Tensor z =
        checkpoint([&](const Tensor& in) { return calls++ == 0 ? in * 2.0 : (in * 2.0).sum(); }, x);
    CHECK_THROWS_WITH_AS(z.sum().backward(), Contains("it must do the same each time"), GradError);
    CHECK(default_generator(Device::cpu()).state() == before);
    CHECK_FALSE(x.grad().defined());
  }
}

#include "nn/conv.h"

#include <doctest/doctest.h>

#include "autograd/loss.h"
#include "autograd/math.h"
#include "graphs/captured_step.h"
#include "nn/activations.h"
#include "nn/container.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/optim/sgd.h"
#include "ops/creation.h"
#include "ops/elementwise.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;

namespace {

// Convolution, normalisation and a classifier, with the same weights for one seed.
struct Net {
  explicit Net(Device device)
      : init(3, device),
        model(nn::Conv2d(2, 4, 3,
                         {.padding = 1, .bias = false, .device = device, .generator = &init}),
              nn::BatchNorm2d(4, {.device = device}), nn::ReLU(),
              nn::Conv2d(4, 4, 3, {.groups = 4, .device = device, .generator = &init}),
              nn::Flatten(), nn::Linear(64, 3, {.device = device, .generator = &init})),
        sgd(model.parameters(), {.learning_rate = 0.1, .momentum = 0.9}) {}
  Generator init;
  nn::Sequential model;
  nn::SGD sgd;
};

}  // namespace

TEST_SUITE("graphs/conv") {
  TEST_CASE("a recorded training step of a convolutional net equals the eager one") {
    for_each_device([](Device device) {
      Net eager(device);
      Net recorded(device);
      const auto train = [](Net& net, const Tensor& x, const Tensor& labels) {
        net.sgd.zero_grad();
        Tensor loss = cross_entropy(net.model(x), labels);
        loss.backward();
        net.sgd.step();
        return loss.detach();
      };
      CapturedStep step(device, [&](const Tensor& x, const Tensor& labels) {
        return train(recorded, x, labels);
      });
      const Tensor labels =
          ops::cast(Tensor::from_vector<double>({4}, {0, 1, 2, 1}, device), DType::int64);
      for (std::uint64_t i = 0; i < 4; ++i) {
        const Tensor x = random_tensor({4, 2, 6, 6}, 10 + i, DType::float32, device);
        const Tensor want = train(eager, x, labels);
        check_identical(step(x, labels), want);
      }
      const auto wanted = eager.model.state_dict();
      const auto got = recorded.model.state_dict();
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        CAPTURE(wanted[i].first);
        check_identical(got[i].second.detach(), wanted[i].second.detach());
      }
    });
  }
}

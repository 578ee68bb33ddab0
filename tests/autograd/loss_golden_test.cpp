#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "autograd/arithmetic.h"
#include "autograd/grad_check.h"
#include "autograd/loss.h"
#include "autograd/reduce.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using testing::check_close;
using testing::for_each_device;

namespace {

struct Golden {
  const char* name;
  Reduction reduction;
  std::vector<double> loss;
  std::vector<double> gradient;  // of the loss's terms times 1, 2, ...
};

const std::vector<Golden>& goldens() {
  static const std::vector<Golden> kGoldens = {
#include "tests/golden/losses.inc"
  };
  return kGoldens;
}

constexpr std::int64_t kRows = 4;
constexpr std::int64_t kCols = 3;

// As tests/golden/losses.py.
Tensor values(int seed, Device device) {
  std::vector<double> numbers;
  for (int i = 0; i < kRows * kCols; ++i) {
    numbers.push_back(((seed + 1) * (7 * i + 3) % 23 - 11) / 8.0);
  }
  return Tensor::from_vector({kRows, kCols}, numbers, device);
}

using Loss = std::function<Tensor(const Tensor& x, Reduction reduction)>;

std::vector<std::pair<std::string, Loss>> losses(Device device) {
  const Tensor labels = Tensor::from_vector<std::int64_t>({4}, {2, 0, 1, 2}, device);
  const Tensor weight = Tensor::from_vector({3}, std::vector<double>{0.5, 2.0, 1.25}, device);
  const Tensor y = Tensor::from_vector<std::int64_t>({4}, {1, -1, -1, 1}, device);
  const Tensor a = values(2, device);
  const Tensor b = values(3, device);
  const Tensor target = softmax(b, 1);
  target.select(0, 1).copy_(
      Tensor::from_vector({3}, std::vector<double>{0.0, 0.25, 0.75}).to(device));
  return {
      {"ce_smooth",
       [=](const Tensor& x, Reduction r) {
         return cross_entropy(x, labels, {.reduction = r, .label_smoothing = 0.2});
       }},
      {"ce_weight",
       [=](const Tensor& x, Reduction r) {
         return cross_entropy(x, labels, {.reduction = r, .weight = weight});
       }},
      {"ce_ignore",
       [=](const Tensor& x, Reduction r) {
         return cross_entropy(x, labels, {.reduction = r, .ignore_index = 2});
       }},
      {"ce_all",
       [=](const Tensor& x, Reduction r) {
         return cross_entropy(
             x, labels,
             {.reduction = r, .label_smoothing = 0.1, .weight = weight, .ignore_index = 1});
       }},
      {"smooth_l1",
       [=](const Tensor& x, Reduction r) {
         return smooth_l1_loss(x, a, {.reduction = r, .beta = 0.75});
       }},
      {"l1", [=](const Tensor& x,
                 Reduction r) { return smooth_l1_loss(x, a, {.reduction = r, .beta = 0.0}); }},
      {"huber", [=](const Tensor& x,
                    Reduction r) { return huber_loss(x, a, {.reduction = r, .delta = 0.75}); }},
      {"kl_div", [=](const Tensor& x,
                     Reduction r) { return kl_div(log_softmax(x, 1), target, {.reduction = r}); }},
      {"kl_div_log",
       [=](const Tensor& x, Reduction r) {
         return kl_div(x, b, {.reduction = r, .log_target = true});
       }},
      {"cosine",
       [=](const Tensor& x, Reduction r) {
         return cosine_embedding_loss(x, a, y, {.reduction = r, .margin = 0.1});
       }},
      {"triplet", [=](const Tensor& x,
                      Reduction r) { return triplet_margin_loss(x, a, b, {.reduction = r}); }},
      {"triplet_swap",
       [=](const Tensor& x, Reduction r) {
         return triplet_margin_loss(x, a, b,
                                    {.reduction = r, .margin = 2.0, .p = 3.0, .swap = true});
       }},
  };
}

}  // namespace

TEST_SUITE("autograd/loss_golden") {
  TEST_CASE("losses and their gradients are PyTorch's, in every reduction") {
    for_each_device([](Device device) {
      std::size_t compared = 0;
      for (const auto& [name, loss_of] : losses(device)) {
        for (const Golden& golden : goldens()) {
          if (name != golden.name) continue;
          ++compared;
          CAPTURE(name);
          const Tensor x = values(1, device).set_requires_grad();
          const Tensor loss = loss_of(x, golden.reduction);
          check_close(loss.detach(), golden.loss, 1e-11);
          const auto terms = static_cast<double>(loss.numel());
          const Tensor weights =
              arange(1.0, terms + 1.0, 1.0, {.dtype = DType::float64, .device = device});
          loss.backward(weights.reshape(loss.shape()));
          check_close(x.grad(), golden.gradient, 1e-11);
        }
      }
      CHECK(compared == goldens().size());
      CHECK(compared == 3 * losses(device).size());
    });
  }

  TEST_CASE("second derivatives of cross-entropy, KL divergence, cosine and triplet losses") {
    for (const auto& [name, loss_of] : losses(Device::cpu())) {
      if (name.starts_with("smooth") || name == "l1" || name == "huber") continue;  // kinks
      CAPTURE(name);
      const auto function = [&loss_of](const std::vector<Tensor>& x) {
        return std::vector<Tensor>{loss_of(x[0], Reduction::mean)};
      };
      const Tensor x = testing::random_tensor({kRows, kCols}, 7, DType::float64);
      CHECK(grad_grad_check(function, {x.set_requires_grad()}));
    }
  }

  TEST_CASE("batchmean divides by the batch alone") {
    const Tensor x = log_softmax(values(1, Device::cpu()), 1);
    const Tensor target = softmax(values(2, Device::cpu()), 1);
    const double total = kl_div(x, target, {.reduction = Reduction::sum}).item();
    CHECK(kl_div(x, target, {.batchmean = true}).item() == doctest::Approx(total / 4));
  }

  TEST_CASE("ignored rows may hold any label and any logits, all ignored give NaN as a mean") {
    for_each_device([](Device device) {
      const Tensor x = Tensor::from_vector<double>({2, 2}, {0.0, 0.0, 1e308, -1e308}, device);
      const Tensor labels = Tensor::from_vector<std::int64_t>({2}, {1, -100}, device);
      const Tensor loss = cross_entropy(x.set_requires_grad(), labels, {.ignore_index = -100});
      check_close(loss.detach(), {std::log(2.0)}, 1e-12);
      loss.backward();
      check_close(x.grad(), {0.5, -0.5, 0.0, 0.0}, 1e-12);
      const Tensor none = Tensor::from_vector<std::int64_t>({2}, {-100, -100}, device);
      check_close(cross_entropy(x.detach(), none, {.ignore_index = -100}),
                  {std::numeric_limits<double>::quiet_NaN()}, 0.0);
    });
  }

  TEST_CASE("bad shapes and options are refused") {
    const Tensor x = values(1, Device::cpu());
    const Tensor labels = Tensor::from_vector<std::int64_t>({4}, {2, 0, 1, 3});
    using doctest::Contains;
    CHECK_THROWS_WITH_AS(cross_entropy(x, labels, {.label_smoothing = 1.5}),
                         Contains("cross_entropy: label_smoothing must be in [0, 1], got 1.5"),
                         ValueError);
    CHECK_THROWS_WITH_AS(
        cross_entropy(x, labels, {.weight = ones({2}, {.dtype = DType::float64})}),
        Contains("cross_entropy: weight must be [classes] for logits [4, 3], got [2]"), ShapeError);
    CHECK_THROWS_AS(cross_entropy(x, labels, {.weight = ones({3})}), DTypeError);
    CHECK_THROWS_AS(cross_entropy(x, labels, {.ignore_index = -100}), IndexError);
    CHECK_THROWS_WITH_AS(huber_loss(x, x, {.delta = 0.0}),
                         Contains("huber_loss: delta must be positive, got 0"), ValueError);
    CHECK_THROWS_WITH_AS(smooth_l1_loss(x, x.select(0, 0)),
                         Contains("smooth_l1_loss: x and target must have one shape, got x [4, 3] "
                                  "and target [3]"),
                         ShapeError);
    CHECK_THROWS_AS(smooth_l1_loss(x, x, {.beta = -1.0}), ValueError);
    CHECK_THROWS_AS(kl_div(x, x.t()), ShapeError);
    CHECK_THROWS_WITH_AS(cosine_embedding_loss(x, x, x),
                         Contains("cosine_embedding_loss: needs x1 and x2 [rows, features] and y "
                                  "[rows], got [4, 3], [4, 3] and [4, 3]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(
        triplet_margin_loss(x, x, x, {.margin = 0.0}),
        Contains("triplet_margin_loss: margin and p must be positive, got 0 and 2"), ValueError);
  }
}

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <optional>
#include <string>
#include <vector>

#include "autograd/arithmetic.h"
#include "autograd/layout.h"
#include "autograd/linalg.h"
#include "autograd/math.h"
#include "autograd/reduce.h"
#include "framework/random/generator.h"
#include "framework/runtime/emulation.h"
#include "graphs/graphed_callable.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

using namespace capstan;
using namespace capstan::testing;

namespace {

constexpr std::int64_t kRows = 3;
constexpr std::int64_t kWidth = 4;

// A random network: a list of layers, cut into callables of up to four, and how it is run.
struct Recipe {
  std::vector<int> layers;
  std::size_t micro_batches = 1;
  bool one_backward = false;
  bool static_results = false;
  std::vector<bool> streams;  // whether a call runs on a side stream
};

enum Layer {
  kLinear,
  kShared,  // the weight of the callable that all its layers of this kind share
  kRelu,
  kTanh,
  kDropout,
  kKeep,  // begins a branch here
  kAddBranch,
  kMulBranch,
  kTranspose,
  kSecondInput,
  kLayers
};

std::string describe(const Recipe& recipe) {
  static const char* const names[] = {"linear", "shared", "relu", "tanh",      "dropout",
                                      "keep",   "add",    "mul",  "transpose", "second"};
  std::string text;
  for (const int layer : recipe.layers) text += std::string(names[layer]) + " ";
  return text + "| " + std::to_string(recipe.micro_batches) + " micro-batches" +
         (recipe.one_backward ? ", one backward" : "") +
         (recipe.static_results ? ", static results" : "");
}

std::ostream& operator<<(std::ostream& out, const Recipe& recipe) {
  return out << describe(recipe);
}

// One callable: h, second -> {h, the mean of what the branch held}.
class Piece {
 public:
  Piece(std::vector<int> layers, std::uint64_t seed, const Generator& generator)
      : layers_(std::move(layers)), generator_(generator) {
    const Device device = generator.device();
    for (const int layer : layers_) {
      weights_.push_back(layer == kLinear ? weight(++seed, device) : Tensor());
    }
    shared_ = weight(seed + 100, device);
  }

  TensorTree operator()(const Tensor& x, const Tensor& second) const {
    Tensor h = x;
    Tensor branch = x;
    bool used_second = false;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      switch (layers_[i]) {
        case kLinear: h = linear(h, weights_[i]); break;
        case kShared: h = linear(h, shared_); break;
        case kRelu: h = relu(h); break;
        case kTanh: h = tanh(h); break;
        case kDropout: h = dropout(h, 0.3, true, &generator_); break;
        case kKeep: branch = h; break;
        case kAddBranch: h = h + branch; break;
        case kMulBranch: h = h * branch; break;
        case kTranspose: h = h.transpose(0, 1).contiguous().reshape({kRows, kWidth}); break;
        case kSecondInput:
          // Once a callable: how sums of more associate is not promised.
          if (!used_second) h = h * second;
          used_second = true;
          break;
        default: break;
      }
    }
    return TensorTree({h, mean(branch)});
  }

  [[nodiscard]] std::vector<Tensor> parameters() const {
    std::vector<Tensor> all;
    for (const Tensor& tensor : weights_) {
      if (tensor.defined()) all.push_back(tensor);
    }
    all.push_back(shared_);
    return all;
  }

 private:
  static Tensor weight(std::uint64_t seed, Device device) {
    return random_tensor({kWidth, kWidth}, seed, DType::float32, device).set_requires_grad();
  }

  const std::vector<int> layers_;
  const Generator& generator_;
  std::vector<Tensor> weights_;
  Tensor shared_;
};

struct Outcome {
  std::vector<Tensor> tensors;
  GeneratorState state;
};

Outcome run(const Recipe& recipe, Device device, bool graphed) {
  const Generator generator(17, device);
  std::vector<Piece> pieces;
  for (std::size_t at = 0; at == 0 || at < recipe.layers.size(); at += 4) {
    const std::size_t end = std::min(at + 4, recipe.layers.size());
    const auto begin = recipe.layers.begin();
    pieces.emplace_back(std::vector<int>(begin + static_cast<std::ptrdiff_t>(at),
                                         begin + static_cast<std::ptrdiff_t>(end)),
                        1000 * at, generator);
  }
  const auto leaf = [&](std::uint64_t seed) {
    return random_tensor({kRows, kWidth}, seed, DType::float32, device).set_requires_grad();
  };
  std::vector<GraphedCallable> callables;
  if (graphed) {
    std::vector<Graphable> all;
    for (const Piece& piece : pieces) all.emplace_back(piece, TensorTree({leaf(1), leaf(2)}));
    callables =
        make_graphed_callables(std::move(all), {.warmup = 1,
                                                .allow_unused_input = true,
                                                .slots = static_cast<int>(recipe.micro_batches),
                                                .static_results = recipe.static_results});
  }

  const Stream main = current_stream(device);
  const Stream side = Stream::create(device);
  Outcome outcome;
  std::vector<Tensor> inputs;
  Tensor total;
  for (std::size_t batch = 0; batch < recipe.micro_batches; ++batch) {
    Tensor h = leaf(10 + batch);
    const Tensor second = leaf(20 + batch);
    inputs.insert(inputs.end(), {h, second});
    Tensor loss;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const bool beside = i < recipe.streams.size() && recipe.streams[i];
      if (beside) side.wait_stream(main);
      TensorTree y;
      {
        std::optional<StreamGuard> guard;
        if (beside) guard.emplace(side);
        y = graphed ? callables[i](h, second) : pieces[i](h, second);
      }
      if (beside) {
        main.wait_stream(side);
        for (const Tensor& tensor : y.flatten()) tensor.record_stream(main);
      }
      h = y[0];
      const Tensor aside = y[1];
      outcome.tensors.push_back(h.detach().clone());
      loss = loss.defined() ? loss + aside : aside;
    }
    loss = loss + (h * h).sum();
    outcome.tensors.push_back(loss.detach().clone());
    if (recipe.one_backward) {
      total = total.defined() ? total + loss : loss;
    } else {
      loss.backward();
    }
  }
  if (recipe.one_backward) total.backward();
  for (const Tensor& input : inputs) outcome.tensors.push_back(input.grad());
  for (const Piece& piece : pieces) {
    for (const Tensor& parameter : piece.parameters()) outcome.tensors.push_back(parameter.grad());
  }
  outcome.state = generator.state();
  main.synchronize();
  side.synchronize();
  return outcome;
}

std::string difference(const Outcome& got, const Outcome& want) {
  if (got.tensors.size() != want.tensors.size()) return "another number of tensors";
  for (std::size_t i = 0; i < got.tensors.size(); ++i) {
    if (got.tensors[i].defined() != want.tensors[i].defined()) {
      return "tensor " + std::to_string(i) + " exists in one alone";
    }
    if (got.tensors[i].defined() && !identical(got.tensors[i], want.tensors[i])) {
      return "tensor " + std::to_string(i) + " differs";
    }
  }
  return got.state == want.state ? "" : "the generator's state differs";
}

rc::Gen<Recipe> recipes() {
  return rc::gen::map(
      rc::gen::tuple(rc::gen::container<std::vector<int>>(rc::gen::inRange<int>(0, kLayers)),
                     rc::gen::inRange<std::size_t>(1, 4), rc::gen::arbitrary<bool>(),
                     rc::gen::arbitrary<bool>(), rc::gen::arbitrary<std::vector<bool>>()),
      [](const auto& drawn) {
        Recipe recipe;
        recipe.layers = std::get<0>(drawn);
        if (recipe.layers.size() > 16) recipe.layers.resize(16);
        recipe.micro_batches = std::get<1>(drawn);
        recipe.one_backward = std::get<2>(drawn);
        recipe.static_results = std::get<3>(drawn);
        recipe.streams = std::get<4>(drawn);
        // Sums into a weight that several layers share associate as the calls do.
        for (const int layer : recipe.layers) {
          if (layer == kShared) recipe.one_backward = false;
        }
        return recipe;
      });
}

bool check_many(int count, const std::function<void(const Recipe&)>& property) {
  rc::detail::TestParams params;
  params.seed = test_seed();
  params.maxSuccess = count;
  params.maxSize = 40;
  const auto result =
      rc::detail::checkTestable([&] { property(*recipes()); }, rc::detail::TestMetadata(), params);
  if (result.template is<rc::detail::SuccessResult>()) return true;
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  FAIL_CHECK(text.str());
  return false;
}

}  // namespace

TEST_SUITE("graphs/graphed_property") {
  TEST_CASE("500 random networks: graphed equals eager bit for bit") {
    for_each_device(
        [](Device device) {
          CHECK(check_many(500, [device](const Recipe& recipe) {
            RC_ASSERT(difference(run(recipe, device, true), run(recipe, device, false)) == "");
          }));
        },
        "the next case runs it there, under many schedules");
  }

  TEST_CASE("random networks under random stream schedules: the same, and no unordered access") {
    std::uint64_t seed = test_seed();
    CHECK(check_many(100, [&seed](const Recipe& recipe) {
      const Outcome want = run(recipe, Device::cpu(), false);
      const Emulated emulation({.seed = ++seed});
      Outcome got = run(recipe, Device::cpu(1), true);
      for (Tensor& tensor : got.tensors) {
        if (tensor.defined()) tensor = tensor.to(Device::cpu());
      }
      got.state = want.state;
      RC_ASSERT(difference(got, want) == "");
    }));
  }
}

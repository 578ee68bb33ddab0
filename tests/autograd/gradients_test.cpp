#include <string>
#include <utility>

#include "autograd/arithmetic.h"
#include "autograd/grad_check.h"
#include "autograd/layout.h"
#include "autograd/linalg.h"
#include "autograd/loss.h"
#include "autograd/math.h"
#include "autograd/reduce.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using Tensors = std::vector<Tensor>;

struct Case {
  std::string name;
  std::function<Tensors(const Tensors&)> function;
  Tensors inputs;
};

// A leaf with values in [low, high).
Tensor leaf(const Shape& shape, double low, double high, std::uint64_t seed, Device device) {
  std::vector<double> values =
      testing::random_tensor(shape, seed, DType::float64).to_vector<double>();
  for (double& value : values) value = low + (value + 1.0) * 0.5 * (high - low);
  return Tensor::from_vector(shape, values, device).set_requires_grad();
}

Tensor labels(const std::vector<std::int64_t>& values, Device device) {
  return Tensor::from_vector({static_cast<std::int64_t>(values.size())}, values, device);
}

void check_all(const std::vector<Case>& cases) {
  for (const Case& each : cases) {
    const GradCheckResult first = grad_check(each.function, each.inputs);
    CHECK_MESSAGE(first.ok, each.name, ": ", first.message);
    const GradCheckResult second = grad_grad_check(each.function, each.inputs);
    CHECK_MESSAGE(second.ok, each.name, " twice: ", second.message);
  }
}

struct Unary {
  const char* name;
  Tensor (*function)(const Tensor&, Where);
  double low;
  double high;
};

constexpr Unary kUnary[] = {
    {"abs", abs, 0.2, 2.0},
    {"abs of negatives", abs, -2.0, -0.2},
    {"square", square, -2, 2},
    {"exp", exp, -2, 2},
    {"expm1", expm1, -2, 2},
    {"log", log, 0.3, 2},
    {"log1p", log1p, -0.5, 2},
    {"sqrt", sqrt, 0.3, 2},
    {"rsqrt", rsqrt, 0.3, 2},
    {"reciprocal", reciprocal, 0.3, 2},
    {"sin", sin, -3, 3},
    {"cos", cos, -3, 3},
    {"erf", erf, -2, 2},
    {"relu", relu, 0.2, 2},
    {"relu of negatives", relu, -2, -0.2},
    {"gelu", gelu, -2, 2},
    {"tanh", tanh, -2, 2},
    {"sigmoid", sigmoid, -3, 3},
};

struct Binary {
  const char* name;
  Tensor (*function)(const Operand&, const Operand&);
  double low;  // of the left operand; the right one lies in [0.5, 1.5)
  double high;
};

constexpr Binary kBinary[] = {
    {"add", add, -1, 1},
    {"sub", sub, -1, 1},
    {"mul", mul, -1, 1},
    {"div", div, -1, 1},
    {"pow", pow, 0.4, 1.6},
    {"maximum", maximum, 0.4, 1.6},
    {"minimum", minimum, 0.4, 1.6},
};

}  // namespace

TEST_SUITE("autograd/gradients") {
  TEST_CASE("elementwise functions agree with central differences, once and twice") {
    testing::for_each_device([](Device device) {
      std::vector<Case> cases;
      for (const Unary& unary : kUnary) {
        for (const Shape& shape : {Shape{2, 3}, Shape{1}, Shape{}}) {
          cases.push_back({unary.name,
                           [&](const Tensors& x) { return Tensors{unary.function(x[0], {})}; },
                           {leaf(shape, unary.low, unary.high, 3, device)}});
        }
        cases.push_back({std::string(unary.name) + " of a transposed slice",
                         [&](const Tensors& x) {
                           return Tensors{unary.function(x[0].t().slice(0, 0, 3, 2), {})};
                         },
                         {leaf({2, 3}, unary.low, unary.high, 4, device)}});
      }
      check_all(cases);
    });
  }

  TEST_CASE("arithmetic agrees with central differences for every way to broadcast") {
    testing::for_each_device([](Device device) {
      const std::pair<Shape, Shape> shapes[] = {{{2, 3}, {2, 3}}, {{2, 3}, {3}}, {{2, 1}, {1, 3}},
                                                {{}, {2, 2}},     {{1}, {1}},    {{3}, {}}};
      std::vector<Case> cases;
      for (const Binary& binary : kBinary) {
        for (const auto& [left, right] : shapes) {
          cases.push_back(
              {binary.name,
               [&](const Tensors& x) { return Tensors{binary.function(x[0], x[1])}; },
               {leaf(left, binary.low, binary.high, 5, device), leaf(right, 0.5, 1.5, 6, device)}});
        }
        cases.push_back({std::string(binary.name) + " with a number on the right",
                         [&](const Tensors& x) { return Tensors{binary.function(x[0], 0.7)}; },
                         {leaf({2, 3}, binary.low, binary.high, 7, device)}});
        cases.push_back({std::string(binary.name) + " with a number on the left",
                         [&](const Tensors& x) { return Tensors{binary.function(0.7, x[0])}; },
                         {leaf({2, 3}, 0.8, 1.5, 8, device)}});
        cases.push_back({std::string(binary.name) + " of a transposed tensor",
                         [&](const Tensors& x) { return Tensors{binary.function(x[0].t(), x[1])}; },
                         {leaf({2, 3}, binary.low, binary.high, 9, device),
                          leaf({3, 1}, 0.5, 1.5, 10, device)}});
      }
      cases.push_back({"mul of a tensor with itself",
                       [](const Tensors& x) { return Tensors{x[0] * x[0]}; },
                       {leaf({2, 2}, -1, 1, 11, device)}});
      cases.push_back({"neg",
                       [](const Tensors& x) { return Tensors{-x[0] * x[0]}; },
                       {leaf({3}, -1, 1, 12, device)}});
      cases.push_back({"where",
                       [](const Tensors& x) { return Tensors{where(gt(x[0], 0), x[0], x[1])}; },
                       {leaf({2, 3}, -1, 1, 13, device), leaf({3}, -1, 1, 14, device)}});
      check_all(cases);
    });
  }

  TEST_CASE("reductions agree with central differences") {
    testing::for_each_device([](Device device) {
      std::vector<Case> cases;
      using Reduction = Tensor (*)(const Tensor&, const Axes&, bool, Where);
      const std::pair<const char*, Reduction> reductions[] = {
          {"sum", sum}, {"mean", mean}, {"max", max}, {"min", min}};
      const std::pair<Axes, bool> ways[] = {{{}, false},  {{}, true},      {{1}, false},
                                            {{-1}, true}, {{0, 2}, false}, {{2, 0}, true}};
      for (const auto& [name, reduction] : reductions) {
        for (const auto& [axes, keepdim] : ways) {
          cases.push_back({name,
                           [&](const Tensors& x) {
                             const Tensor y = reduction(x[0].permute({2, 0, 1}), axes, keepdim, {});
                             return Tensors{square(y)};
                           },
                           {leaf({2, 3, 2}, -1, 1, 15, device)}});
        }
      }
      check_all(cases);
    });
  }

  TEST_CASE("matrix products agree with central differences for every rank") {
    testing::for_each_device([](Device device) {
      const std::pair<Shape, Shape> shapes[] = {{{2, 3}, {3, 4}},    {{3}, {3, 2}},
                                                {{2, 3}, {3}},       {{3}, {3}},
                                                {{1, 1}, {1, 1}},    {{2, 2, 3}, {3, 2}},
                                                {{2, 3}, {2, 3, 2}}, {{2, 2, 3}, {2, 3, 1}},
                                                {{2, 2, 3}, {3}},    {{2, 1, 2, 2}, {3, 2, 2}},
                                                {{3}, {2, 3, 2}}};
      std::vector<Case> cases;
      for (const auto& [left, right] : shapes) {
        cases.push_back({detail::concat("matmul of ", left, " and ", right),
                         [](const Tensors& x) { return Tensors{matmul(x[0], x[1])}; },
                         {leaf(left, -1, 1, 16, device), leaf(right, -1, 1, 17, device)}});
      }
      cases.push_back({"matmul of transposed operands",
                       [](const Tensors& x) { return Tensors{matmul(x[0].t(), x[1].t())}; },
                       {leaf({3, 2}, -1, 1, 18, device), leaf({4, 3}, -1, 1, 19, device)}});
      cases.push_back({"bmm",
                       [](const Tensors& x) { return Tensors{bmm(x[0], x[1])}; },
                       {leaf({2, 2, 3}, -1, 1, 20, device), leaf({2, 3, 2}, -1, 1, 21, device)}});
      for (const Shape& shape : {Shape{2, 3}, Shape{2, 2, 3}, Shape{3}}) {
        cases.push_back({detail::concat("linear of ", shape),
                         [](const Tensors& x) { return Tensors{linear(x[0], x[1], x[2])}; },
                         {leaf(shape, -1, 1, 22, device), leaf({4, 3}, -1, 1, 23, device),
                          leaf({4}, -1, 1, 24, device)}});
      }
      cases.push_back({"linear without bias",
                       [](const Tensors& x) { return Tensors{linear(x[0].t(), x[1])}; },
                       {leaf({3, 2}, -1, 1, 25, device), leaf({4, 3}, -1, 1, 26, device)}});
      check_all(cases);
    });
  }

  TEST_CASE("softmax and losses agree with central differences") {
    testing::for_each_device([](Device device) {
      std::vector<Case> cases;
      for (const int axis : {0, 1, -1}) {
        const Tensors inputs{leaf({2, 3, 2}, -1, 1, 27, device)};
        cases.push_back(
            {"softmax", [=](const Tensors& x) { return Tensors{softmax(x[0], axis)}; }, inputs});
        cases.push_back({"log_softmax",
                         [=](const Tensors& x) { return Tensors{log_softmax(x[0], axis)}; },
                         inputs});
      }
      const Tensor classes = labels({2, 0}, device);
      for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
        const LossOptions options{.reduction = reduction};
        const Tensor logits = leaf({2, 3}, -1, 1, 28, device);
        const Tensor target = leaf({2, 3}, 0.1, 0.9, 29, device);
        cases.push_back({"cross_entropy",
                         [=](const Tensors& x) {
                           return Tensors{cross_entropy(x[0], classes, {.reduction = reduction})};
                         },
                         {logits}});
        cases.push_back({"nll_loss",
                         [=](const Tensors& x) {
                           return Tensors{nll_loss(log_softmax(x[0]), classes, options)};
                         },
                         {logits}});
        cases.push_back({"mse_loss",
                         [=](const Tensors& x) { return Tensors{mse_loss(x[0], x[1], options)}; },
                         {logits, target}});
        cases.push_back({"binary_cross_entropy_with_logits",
                         [=](const Tensors& x) {
                           return Tensors{binary_cross_entropy_with_logits(x[0], x[1], options)};
                         },
                         {logits, target}});
      }
      check_all(cases);
    });
  }

  TEST_CASE("views, copies and layout agree with central differences") {
    testing::for_each_device([](Device device) {
      const Tensor rows = Tensor::from_vector<std::int64_t>({2, 2}, {1, 1, 0, 2}, device);
      const Tensor places = labels({2, 0, 2}, device);
      const std::pair<const char*, std::function<Tensor(const Tensor&)>> functions[] = {
          {"reshape",
           [](const Tensor& x) {
             return x.reshape({3, -1});
           }},
          {"reshape with a copy", [](const Tensor& x) { return x.t().reshape({6}); }},
          {"flatten", [](const Tensor& x) { return x.flatten(); }},
          {"transpose", [](const Tensor& x) { return x.transpose(0, -1); }},
          {"permute",
           [](const Tensor& x) {
             return x.unsqueeze(0).permute({2, -3, 1});
           }},
          {"slice", [](const Tensor& x) { return x.slice(1, -2, 3); }},
          {"slice with a step", [](const Tensor& x) { return x.slice(1, 0, 100, 2); }},
          {"select", [](const Tensor& x) { return x.select(-1, 1); }},
          {"expand",
           [](const Tensor& x) {
             return x.unsqueeze(1).expand({2, 2, 4, -1});
           }},
          {"squeeze of an axis", [](const Tensor& x) { return x.slice(0, 1, 2).squeeze(0); }},
          {"squeeze", [](const Tensor& x) { return x.slice(0, 1, 2).squeeze(); }},
          {"contiguous", [](const Tensor& x) { return x.t().contiguous(); }},
          {"clone", [](const Tensor& x) { return x.clone(); }},
          {"cat",
           [](const Tensor& x) {
             return cat({x, x.slice(1, 0, 1), x}, 1);
           }},
          {"gather", [=](const Tensor& x) { return gather(x, 1, rows); }},
          {"index_select", [=](const Tensor& x) { return index_select(x, 1, places); }},
      };
      std::vector<Case> cases;
      for (const auto& [name, function] : functions) {
        cases.push_back({name,
                         [&](const Tensors& x) { return Tensors{square(function(x[0]))}; },
                         {leaf({2, 3}, -1, 1, 30, device)}});
      }
      check_all(cases);
    });
  }

  TEST_CASE("writes in place agree with central differences") {
    testing::for_each_device([](Device device) {
      const std::pair<const char*, std::function<void(const Tensor&, const Tensor&)>> writes[] = {
          {"add_", [](const Tensor& y, const Tensor& x) { y.add_(x); }},
          {"sub_", [](const Tensor& y, const Tensor& x) { y.sub_(x); }},
          {"mul_", [](const Tensor& y, const Tensor& x) { y.mul_(x); }},
          {"div_", [](const Tensor& y, const Tensor& x) { y.div_(x); }},
          {"mul_ by a number", [](const Tensor& y, const Tensor&) { y.mul_(3); }},
          {"div_ by a number", [](const Tensor& y, const Tensor&) { y.div_(3); }},
          {"mul_ by itself", [](const Tensor& y, const Tensor&) { y.mul_(y); }},
          {"div_ by itself", [](const Tensor& y, const Tensor&) { y.div_(y); }},
          {"add_ of itself", [](const Tensor& y, const Tensor&) { y.add_(y); }},
          {"copy_", [](const Tensor& y, const Tensor& x) { y.copy_(x); }},
          {"two in a row", [](const Tensor& y, const Tensor& x) { y.mul_(x).add_(x); }},
      };
      std::vector<Case> cases;
      for (const auto& [name, write] : writes) {
        cases.push_back({name,
                         [&](const Tensors& x) {
                           const Tensor y = x[0] + 0.5;
                           write(y, x[1]);
                           return Tensors{square(y)};
                         },
                         {leaf({2, 3}, 0.5, 1.5, 31, device), leaf({3}, 0.5, 1.5, 32, device)}});
      }
      check_all(cases);
    });
  }
}

}  // namespace capstan

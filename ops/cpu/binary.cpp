#include <array>
#include <cmath>
#include <type_traits>

#include "framework/core/dtype_visit.h"
#include "ops/cpu/loop.h"
#include "ops/cpu/vector_math.h"
#include "ops/kernels.h"

namespace capstan::cpu {
namespace {

/// A number becomes an operand that repeats.
template <typename T>
class Operands {
 public:
  using C = Compute<T>;

  explicit Operands(const BinaryArgs& args)
      : args_(args), number_(static_cast<T>(args.scalar)), repeated_{&number_, {}} {}

  template <typename Y, typename F>
  void apply(F f, std::int64_t grain = kCheapGrain) const {
    if constexpr (is_half_type<T>) {
      // Arithmetic takes the number as it is; comparisons as the tensor would hold it.
      const C number = std::is_same_v<Y, bool> ? C{number_} : static_cast<C>(args_.scalar);
      if (args_.scalar_side == ScalarSide::left) {
        return map<T, Y>(args_.loop, args_.b, args_.y, grain, [=](C b) { return f(number, b); });
      }
      if (args_.scalar_side == ScalarSide::right) {
        return map<T, Y>(args_.loop, args_.a, args_.y, grain, [=](C a) { return f(a, number); });
      }
    }
    const Walk& a = args_.scalar_side == ScalarSide::left ? repeated_ : args_.a;
    const Walk& b = args_.scalar_side == ScalarSide::right ? repeated_ : args_.b;
    map<T, Y>(args_.loop, a, b, args_.y, grain, f);
  }

  /// y = f(a, Function(b)).
  template <typename Function, typename F>
  void apply_costly(F f) const {
    const Walk& a = args_.scalar_side == ScalarSide::left ? repeated_ : args_.a;
    const Walk& b = args_.scalar_side == ScalarSide::right ? repeated_ : args_.b;
    const int last = args_.loop.rank - 1;
    for_each_row<3>(args_.loop, {a.strides, b.strides, args_.y.strides}, kCostlyGrain,
                    [&](const std::array<std::int64_t, 3>& at, std::int64_t count) {
                      const T* left = static_cast<const T*>(a.data) + at[0];
                      const T* right = static_cast<const T*>(b.data) + at[1];
                      T* y = static_cast<T*>(args_.y.data) + at[2];
                      evaluate<Function, C>(
                          count,
                          [=, step = b.strides[last]](std::int64_t i) { return right[i * step]; },
                          [=, step = a.strides[last], y_step = args_.y.strides[last]](
                              std::int64_t i, C result) {
                            y[i * y_step] = static_cast<T>(f(left[i * step], result));
                          });
                    });
  }

 private:
  const BinaryArgs& args_;
  T number_;
  Walk repeated_;
};

// The comparisons with itself let NaN win.
template <typename T>
T larger(T a, T b) {
  return a > b || a != a ? a : b;
}

template <typename T>
T smaller(T a, T b) {
  return a < b || a != a ? a : b;
}

template <typename T>
void arithmetic(const BinaryArgs& args) {
  using C = Compute<T>;
  const Operands<T> operands(args);
  const auto apply = [&](auto f) { operands.template apply<T>(f); };
  switch (args.op) {
    case BinaryOp::add: return apply([](C a, C b) { return static_cast<C>(a + b); });
    case BinaryOp::sub: return apply([](C a, C b) { return static_cast<C>(a - b); });
    case BinaryOp::mul: return apply([](C a, C b) { return static_cast<C>(a * b); });
    case BinaryOp::maximum: return apply([](C a, C b) { return larger(a, b); });
    case BinaryOp::minimum: return apply([](C a, C b) { return smaller(a, b); });
    default: break;
  }
}

template <typename T>
void comparison(const BinaryArgs& args) {
  using C = Compute<T>;
  const Operands<T> operands(args);
  const auto apply = [&](auto f) { operands.template apply<bool>(f); };
  switch (args.op) {
    case BinaryOp::eq: return apply([](C a, C b) { return a == b; });
    case BinaryOp::ne: return apply([](C a, C b) { return a != b; });
    case BinaryOp::lt: return apply([](C a, C b) { return a < b; });
    case BinaryOp::le: return apply([](C a, C b) { return a <= b; });
    case BinaryOp::gt: return apply([](C a, C b) { return a > b; });
    case BinaryOp::ge: return apply([](C a, C b) { return a >= b; });
    default: break;
  }
}

void logical(const BinaryArgs& args) {
  const Operands<bool> operands(args);
  if (args.op == BinaryOp::logical_and) {
    operands.apply<bool>([](bool a, bool b) { return static_cast<bool>(a & b); });
  } else {
    operands.apply<bool>([](bool a, bool b) { return static_cast<bool>(a | b); });
  }
}

template <typename T>
void power(const BinaryArgs& args) {
  using C = Compute<T>;
  const Operands<T> operands(args);
  if (args.scalar_side == ScalarSide::right && args.scalar == 2.0) {
    return operands.template apply<T>([](C a, C) { return a * a; });
  }
  operands.template apply<T>([](C a, C b) { return std::pow(a, b); }, kCostlyGrain);
}

template <typename T>
void floating(const BinaryArgs& args) {
  using C = Compute<T>;
  const Operands<T> operands(args);
  const auto apply = [&](auto f) { operands.template apply<T>(f); };
  switch (args.op) {
    case BinaryOp::div: return apply([](C a, C b) { return a / b; });
    case BinaryOp::pow: return power<T>(args);
    case BinaryOp::relu_backward: return apply([](C g, C y) { return y > C{0} ? g : C{0}; });
    case BinaryOp::tanh_backward: return apply([](C g, C y) { return g * (C{1} - y * y); });
    case BinaryOp::sigmoid_backward: return apply([](C g, C y) { return g * y * (C{1} - y); });
    case BinaryOp::gelu_backward:
      return operands.template apply_costly<GeluSlope>([](C g, C slope) { return g * slope; });
    default: break;
  }
}

}  // namespace

void binary(const BinaryArgs& args) {
  switch (args.op) {
    case BinaryOp::add:
    case BinaryOp::sub:
    case BinaryOp::mul:
    case BinaryOp::maximum:
    case BinaryOp::minimum:
      return visit_numeric(args.dtype, "binary", [&]<typename T>() { arithmetic<T>(args); });
    case BinaryOp::eq:
    case BinaryOp::ne:
    case BinaryOp::lt:
    case BinaryOp::le:
    case BinaryOp::gt:
    case BinaryOp::ge:
      return visit_all(args.dtype, "binary", [&]<typename T>() { comparison<T>(args); });
    case BinaryOp::logical_and:
    case BinaryOp::logical_or: return logical(args);
    default: visit_floating(args.dtype, "binary", [&]<typename T>() { floating<T>(args); });
  }
}

}  // namespace capstan::cpu

#include <cmath>
#include <type_traits>

#include "framework/core/dtype_visit.h"
#include "ops/cpu/loop.h"
#include "ops/cpu/vector_math.h"
#include "ops/kernels.h"

namespace capstan::cpu {
namespace {

template <typename T>
T sign_of(T x) {
  return static_cast<T>(static_cast<int>(x > T{0}) - static_cast<int>(x < T{0}));
}

template <typename T>
T absolute(T x) {
  if constexpr (std::is_unsigned_v<T>) {
    return x;
  } else if constexpr (std::is_integral_v<T>) {
    return x < 0 ? static_cast<T>(-x) : x;
  } else {
    return std::abs(x);
  }
}

template <typename X, typename Y>
Y convert(X x) {
  if constexpr (std::is_same_v<Y, bool>) {
    return x != X{0};
  } else {
    return static_cast<Y>(x);
  }
}

template <typename T, typename F>
void apply(const UnaryArgs& args, F f, std::int64_t grain = kCheapGrain) {
  map<T, T>(args.loop, args.x, args.y, grain, f);
}

void copy(const UnaryArgs& args) {
  // A bool is a byte that is 0 or 1, and loops over bytes vectorise.
  const DType x_dtype = args.x_dtype == DType::boolean ? DType::uint8 : args.x_dtype;
  visit_numeric(x_dtype, "copy", [&]<typename X>() {
    visit_all(args.y_dtype, "copy", [&]<typename Y>() {
      map<X, Y>(args.loop, args.x, args.y, kCheapGrain, [](X x) { return convert<X, Y>(x); });
    });
  });
}

void logical_not(const UnaryArgs& args) {
  visit_all(args.x_dtype, "logical_not", [&]<typename T>() {
    map<T, bool>(args.loop, args.x, args.y, kCheapGrain, [](T x) { return x == T{0}; });
  });
}

template <typename T>
bool numeric(const UnaryArgs& args) {
  switch (args.op) {
    case UnaryOp::neg: apply<T>(args, [](T x) { return static_cast<T>(-x); }); return true;
    case UnaryOp::abs: apply<T>(args, [](T x) { return absolute(x); }); return true;
    case UnaryOp::sign: apply<T>(args, [](T x) { return sign_of(x); }); return true;
    case UnaryOp::square: apply<T>(args, [](T x) { return static_cast<T>(x * x); }); return true;
    default: return false;
  }
}

template <typename T>
void floating(const UnaryArgs& args) {
  const auto costly = [&](auto f) { apply<T>(args, f, kCostlyGrain); };
  const auto cheap = [&](auto f) { apply<T>(args, f); };
  switch (args.op) {
    case UnaryOp::exp: return costly([](T x) { return fast_exp(x); });
    case UnaryOp::expm1: return costly([](T x) { return std::expm1(x); });
    case UnaryOp::log: return costly([](T x) { return fast_log(x); });
    case UnaryOp::log1p: return costly([](T x) { return std::log1p(x); });
    case UnaryOp::sqrt: return cheap([](T x) { return std::sqrt(x); });
    case UnaryOp::rsqrt: return cheap([](T x) { return T{1} / std::sqrt(x); });
    case UnaryOp::reciprocal: return cheap([](T x) { return T{1} / x; });
    case UnaryOp::sin: return costly([](T x) { return std::sin(x); });
    case UnaryOp::cos: return costly([](T x) { return std::cos(x); });
    case UnaryOp::tanh: return costly([](T x) { return fast_tanh(x); });
    case UnaryOp::erf: return costly([](T x) { return std::erf(x); });
    case UnaryOp::sigmoid: return costly([](T x) { return fast_sigmoid(x); });
    // Written so that NaN passes.
    case UnaryOp::relu: return cheap([](T x) { return x < T{0} ? T{0} : x; });
    case UnaryOp::gelu: return costly([](T x) { return x * normal_at(x).cumulative; });
    case UnaryOp::floor: return cheap([](T x) { return std::floor(x); });
    case UnaryOp::ceil: return cheap([](T x) { return std::ceil(x); });
    // Halves go to the even neighbour.
    case UnaryOp::round: return cheap([](T x) { return std::nearbyint(x); });
    default: break;
  }
}

}  // namespace

void unary(const UnaryArgs& args) {
  if (args.op == UnaryOp::copy) return copy(args);
  if (args.op == UnaryOp::logical_not) return logical_not(args);
  const bool done =
      visit_numeric(args.x_dtype, "unary", [&]<typename T>() { return numeric<T>(args); });
  if (!done) visit_floating(args.x_dtype, "unary", [&]<typename T>() { floating<T>(args); });
}

}  // namespace capstan::cpu

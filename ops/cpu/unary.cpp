#include <array>
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
Y convert(Compute<X> x) {
  if constexpr (std::is_same_v<Y, bool>) {
    return x != Compute<X>{0};
  } else {
    return static_cast<Y>(x);
  }
}

template <typename T, typename F>
void apply(const UnaryArgs& args, F f, std::int64_t grain = kCheapGrain) {
  map<T, T>(args.loop, args.x, args.y, grain, f);
}

template <typename T, typename Function>
void apply_costly(const UnaryArgs& args) {
  const T* const x_data = static_cast<const T*>(args.x.data);
  T* const y_data = static_cast<T*>(args.y.data);
  const std::int64_t x_step = args.x.strides[args.loop.rank - 1];
  const std::int64_t y_step = args.y.strides[args.loop.rank - 1];
  for_each_row<2>(
      args.loop, {args.x.strides, args.y.strides}, kCostlyGrain,
      [&](const std::array<std::int64_t, 2>& at, std::int64_t count) {
        const T* x = x_data + at[0];
        T* y = y_data + at[1];
        evaluate<Function, Compute<T>>(
            count, [=](std::int64_t i) { return x[i * x_step]; },
            [=](std::int64_t i, Compute<T> result) { y[i * y_step] = static_cast<T>(result); });
      });
}

void copy(const UnaryArgs& args) {
  // A bool is a byte that is 0 or 1, and loops over bytes vectorise.
  const DType x_dtype = args.x_dtype == DType::boolean ? DType::uint8 : args.x_dtype;
  visit_numeric(x_dtype, "copy", [&]<typename X>() {
    visit_all(args.y_dtype, "copy", [&]<typename Y>() {
      map<X, Y>(args.loop, args.x, args.y, kCheapGrain,
                [](Compute<X> x) { return convert<X, Y>(x); });
    });
  });
}

void logical_not(const UnaryArgs& args) {
  visit_all(args.x_dtype, "logical_not", [&]<typename T>() {
    map<T, bool>(args.loop, args.x, args.y, kCheapGrain,
                 [](Compute<T> x) { return x == Compute<T>{0}; });
  });
}

template <typename T>
bool numeric(const UnaryArgs& args) {
  using C = Compute<T>;
  switch (args.op) {
    case UnaryOp::neg: apply<T>(args, [](C x) { return static_cast<C>(-x); }); return true;
    case UnaryOp::abs: apply<T>(args, [](C x) { return absolute(x); }); return true;
    case UnaryOp::sign: apply<T>(args, [](C x) { return sign_of(x); }); return true;
    case UnaryOp::square: apply<T>(args, [](C x) { return static_cast<C>(x * x); }); return true;
    default: return false;
  }
}

template <typename T>
void floating(const UnaryArgs& args) {
  using C = Compute<T>;
  const auto costly = [&](auto f) { apply<T>(args, f, kCostlyGrain); };
  const auto cheap = [&](auto f) { apply<T>(args, f); };
  switch (args.op) {
    case UnaryOp::exp: return apply_costly<T, Exp>(args);
    case UnaryOp::expm1: return costly([](C x) { return std::expm1(x); });
    case UnaryOp::log: return apply_costly<T, Log>(args);
    case UnaryOp::log1p: return costly([](C x) { return std::log1p(x); });
    case UnaryOp::sqrt: return cheap([](C x) { return std::sqrt(x); });
    case UnaryOp::rsqrt: return cheap([](C x) { return C{1} / std::sqrt(x); });
    case UnaryOp::reciprocal: return cheap([](C x) { return C{1} / x; });
    case UnaryOp::sin: return costly([](C x) { return std::sin(x); });
    case UnaryOp::cos: return costly([](C x) { return std::cos(x); });
    case UnaryOp::tanh: return apply_costly<T, Tanh>(args);
    case UnaryOp::erf: return apply_costly<T, Erf>(args);
    case UnaryOp::sigmoid: return apply_costly<T, Sigmoid>(args);
    // Written so that NaN passes.
    case UnaryOp::relu: return cheap([](C x) { return x < C{0} ? C{0} : x; });
    case UnaryOp::gelu: return apply_costly<T, Gelu>(args);
    case UnaryOp::floor: return cheap([](C x) { return std::floor(x); });
    case UnaryOp::ceil: return cheap([](C x) { return std::ceil(x); });
    // Halves go to the even neighbour.
    case UnaryOp::round: return cheap([](C x) { return std::nearbyint(x); });
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

// Unary operations: one functor template, selected at compile time, over the elementwise engine.

#include <type_traits>

#include "framework/core/dtype_visit.h"
#include "ops/gpu/convert.cuh"
#include "ops/gpu/elementwise.cuh"
#include "ops/gpu/gelu.cuh"

namespace capstan::gpu {
namespace {

template <UnaryOp kOp>
struct Unary {
  template <typename T>
  __device__ T operator()(T x) const {
    if constexpr (kOp == UnaryOp::neg) return static_cast<T>(-x);
    if constexpr (kOp == UnaryOp::square) return static_cast<T>(x * x);
    if constexpr (kOp == UnaryOp::abs) {
      if constexpr (std::is_unsigned_v<T>) {
        return x;
      } else if constexpr (std::is_floating_point_v<T>) {
        return ::fabs(x);
      } else {
        return x < T{0} ? -x : x;
      }
    }
    if constexpr (kOp == UnaryOp::sign) {
      if constexpr (std::is_unsigned_v<T>) {
        return x != T{0};
      } else {
        return static_cast<T>((x > T{0}) - (x < T{0}));
      }
    }
  }
};

template <UnaryOp kOp>
struct FloatingUnary {
  template <typename T>
  __device__ T operator()(T x) const {
    if constexpr (kOp == UnaryOp::exp) return ::exp(x);
    if constexpr (kOp == UnaryOp::expm1) return ::expm1(x);
    if constexpr (kOp == UnaryOp::log) return ::log(x);
    if constexpr (kOp == UnaryOp::log1p) return ::log1p(x);
    if constexpr (kOp == UnaryOp::sqrt) return ::sqrt(x);
    if constexpr (kOp == UnaryOp::rsqrt) return T{1} / ::sqrt(x);
    if constexpr (kOp == UnaryOp::reciprocal) return T{1} / x;
    if constexpr (kOp == UnaryOp::sin) return ::sin(x);
    if constexpr (kOp == UnaryOp::cos) return ::cos(x);
    if constexpr (kOp == UnaryOp::tanh) return ::tanh(x);
    if constexpr (kOp == UnaryOp::erf) return ::erf(x);
    if constexpr (kOp == UnaryOp::sigmoid) return T{1} / (T{1} + ::exp(-x));
    if constexpr (kOp == UnaryOp::relu) return x < T{0} ? T{0} : x;  // lets NaN pass
    if constexpr (kOp == UnaryOp::gelu) return x * normal_cumulative(x);
    if constexpr (kOp == UnaryOp::floor) return ::floor(x);
    if constexpr (kOp == UnaryOp::ceil) return ::ceil(x);
    if constexpr (kOp == UnaryOp::round) return ::rint(x);  // halves to even
  }
};

struct LogicalNot {
  template <typename T>
  __device__ bool operator()(T x) const {
    return x == T{0};
  }
};

template <typename Out, typename In, typename Op>
void run(Op op, const UnaryArgs& args, StreamState& stream) {
  launch_elementwise<Out>(op, args.loop, args.y, stream, tensor_operand<In>(args.x));
}

template <UnaryOp kOp>
void run_numeric(const UnaryArgs& args, StreamState& stream) {
  visit_numeric(args.x_dtype, "unary",
                [&]<typename T>() { run<T, T>(Unary<kOp>{}, args, stream); });
}

template <UnaryOp kOp>
void run_floating(const UnaryArgs& args, StreamState& stream) {
  visit_floating(args.x_dtype, "unary",
                 [&]<typename T>() { run<T, T>(FloatingUnary<kOp>{}, args, stream); });
}

}  // namespace

void unary(const UnaryArgs& args, StreamState& stream) {
  switch (args.op) {
    case UnaryOp::copy: return convert(args, stream);
    case UnaryOp::neg: return run_numeric<UnaryOp::neg>(args, stream);
    case UnaryOp::abs: return run_numeric<UnaryOp::abs>(args, stream);
    case UnaryOp::sign: return run_numeric<UnaryOp::sign>(args, stream);
    case UnaryOp::square: return run_numeric<UnaryOp::square>(args, stream);
    case UnaryOp::exp: return run_floating<UnaryOp::exp>(args, stream);
    case UnaryOp::expm1: return run_floating<UnaryOp::expm1>(args, stream);
    case UnaryOp::log: return run_floating<UnaryOp::log>(args, stream);
    case UnaryOp::log1p: return run_floating<UnaryOp::log1p>(args, stream);
    case UnaryOp::sqrt: return run_floating<UnaryOp::sqrt>(args, stream);
    case UnaryOp::rsqrt: return run_floating<UnaryOp::rsqrt>(args, stream);
    case UnaryOp::reciprocal: return run_floating<UnaryOp::reciprocal>(args, stream);
    case UnaryOp::sin: return run_floating<UnaryOp::sin>(args, stream);
    case UnaryOp::cos: return run_floating<UnaryOp::cos>(args, stream);
    case UnaryOp::tanh: return run_floating<UnaryOp::tanh>(args, stream);
    case UnaryOp::erf: return run_floating<UnaryOp::erf>(args, stream);
    case UnaryOp::sigmoid: return run_floating<UnaryOp::sigmoid>(args, stream);
    case UnaryOp::relu: return run_floating<UnaryOp::relu>(args, stream);
    case UnaryOp::gelu: return run_floating<UnaryOp::gelu>(args, stream);
    case UnaryOp::floor: return run_floating<UnaryOp::floor>(args, stream);
    case UnaryOp::ceil: return run_floating<UnaryOp::ceil>(args, stream);
    case UnaryOp::round: return run_floating<UnaryOp::round>(args, stream);
    case UnaryOp::logical_not:
      visit_all(args.x_dtype, "logical_not",
                [&]<typename T>() { run<bool, T>(LogicalNot{}, args, stream); });
      return;
  }
}

}  // namespace capstan::gpu

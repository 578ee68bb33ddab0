// Binary arithmetic and the gradients that are elementwise in two tensors.

#include "framework/core/dtype_visit.h"
#include "ops/gpu/binary.cuh"
#include "ops/gpu/gelu.cuh"

namespace capstan::gpu {
namespace {

template <BinaryOp kOp>
struct Arithmetic {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    if constexpr (kOp == BinaryOp::add) return static_cast<T>(a + b);
    if constexpr (kOp == BinaryOp::sub) return static_cast<T>(a - b);
    if constexpr (kOp == BinaryOp::mul) return static_cast<T>(a * b);
    // NaN in either operand wins.
    if constexpr (kOp == BinaryOp::maximum) return a > b || a != a ? a : b;
    if constexpr (kOp == BinaryOp::minimum) return a < b || a != a ? a : b;
  }
};

template <BinaryOp kOp>
struct FloatingArithmetic {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    if constexpr (kOp == BinaryOp::div) return a / b;
    if constexpr (kOp == BinaryOp::pow) return ::pow(a, b);
    if constexpr (kOp == BinaryOp::relu_backward) return b > T{0} ? a : T{0};
    if constexpr (kOp == BinaryOp::tanh_backward) return a * (T{1} - b * b);
    if constexpr (kOp == BinaryOp::sigmoid_backward) return a * b * (T{1} - b);
    if constexpr (kOp == BinaryOp::gelu_backward) {
      return a * (normal_cumulative(b) + b * normal_density(b));
    }
  }
};

template <BinaryOp kOp>
void run_numeric(const BinaryArgs& args, StreamState& stream) {
  visit_numeric(args.dtype, "binary",
                [&]<typename T>() { launch_binary<T, T>(Arithmetic<kOp>{}, args, stream); });
}

template <BinaryOp kOp>
void run_floating(const BinaryArgs& args, StreamState& stream) {
  visit_floating(args.dtype, "binary", [&]<typename T>() {
    launch_binary<T, T>(FloatingArithmetic<kOp>{}, args, stream);
  });
}

}  // namespace

void binary(const BinaryArgs& args, StreamState& stream) {
  switch (args.op) {
    case BinaryOp::add: return run_numeric<BinaryOp::add>(args, stream);
    case BinaryOp::sub: return run_numeric<BinaryOp::sub>(args, stream);
    case BinaryOp::mul: return run_numeric<BinaryOp::mul>(args, stream);
    case BinaryOp::maximum: return run_numeric<BinaryOp::maximum>(args, stream);
    case BinaryOp::minimum: return run_numeric<BinaryOp::minimum>(args, stream);
    case BinaryOp::div: return run_floating<BinaryOp::div>(args, stream);
    case BinaryOp::pow: return run_floating<BinaryOp::pow>(args, stream);
    case BinaryOp::relu_backward: return run_floating<BinaryOp::relu_backward>(args, stream);
    case BinaryOp::tanh_backward: return run_floating<BinaryOp::tanh_backward>(args, stream);
    case BinaryOp::sigmoid_backward: return run_floating<BinaryOp::sigmoid_backward>(args, stream);
    case BinaryOp::gelu_backward: return run_floating<BinaryOp::gelu_backward>(args, stream);
    case BinaryOp::eq:
    case BinaryOp::ne:
    case BinaryOp::lt:
    case BinaryOp::le:
    case BinaryOp::gt:
    case BinaryOp::ge:
    case BinaryOp::logical_and:
    case BinaryOp::logical_or: return compare(args, stream);
  }
}

}  // namespace capstan::gpu

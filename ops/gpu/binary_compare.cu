// Comparisons and logic: bool results.

#include "framework/core/dtype_visit.h"
#include "ops/gpu/binary.cuh"

namespace capstan::gpu {
namespace {

template <BinaryOp kOp>
struct Compare {
  template <typename T>
  __device__ bool operator()(T a, T b) const {
    if constexpr (kOp == BinaryOp::eq) return a == b;
    if constexpr (kOp == BinaryOp::ne) return a != b;
    if constexpr (kOp == BinaryOp::lt) return a < b;
    if constexpr (kOp == BinaryOp::le) return a <= b;
    if constexpr (kOp == BinaryOp::gt) return a > b;
    if constexpr (kOp == BinaryOp::ge) return a >= b;
    if constexpr (kOp == BinaryOp::logical_and) return a && b;
    if constexpr (kOp == BinaryOp::logical_or) return a || b;
  }
};

template <BinaryOp kOp>
void run(const BinaryArgs& args, StreamState& stream) {
  visit_all(args.dtype, "compare",
            [&]<typename T>() { launch_binary<bool, T>(Compare<kOp>{}, args, stream); });
}

}  // namespace

void compare(const BinaryArgs& args, StreamState& stream) {
  switch (args.op) {
    case BinaryOp::eq: return run<BinaryOp::eq>(args, stream);
    case BinaryOp::ne: return run<BinaryOp::ne>(args, stream);
    case BinaryOp::lt: return run<BinaryOp::lt>(args, stream);
    case BinaryOp::le: return run<BinaryOp::le>(args, stream);
    case BinaryOp::gt: return run<BinaryOp::gt>(args, stream);
    case BinaryOp::ge: return run<BinaryOp::ge>(args, stream);
    case BinaryOp::logical_and:
      return launch_binary<bool, bool>(Compare<BinaryOp::logical_and>{}, args, stream);
    default: return launch_binary<bool, bool>(Compare<BinaryOp::logical_or>{}, args, stream);
  }
}

}  // namespace capstan::gpu

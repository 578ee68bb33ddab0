// Copies and conversions between any two dtypes. Without a conversion only the element size
// matters.

#include "ops/gpu/convert.cuh"

#include <type_traits>

#include "framework/core/dtype_visit.h"
#include "ops/gpu/element_size.cuh"
#include "ops/gpu/elementwise.cuh"

namespace capstan::gpu {
namespace {

struct Identity {
  template <typename T>
  __device__ T operator()(T x) const {
    return x;
  }
};

template <typename To>
struct Convert {
  template <typename From>
  __device__ To operator()(From x) const {
    if constexpr (std::is_same_v<To, bool>) {
      return x != From{0};
    } else {
      return static_cast<To>(x);
    }
  }
};

template <typename From>
void convert_from(const UnaryArgs& args, StreamState& stream) {
  visit_all(args.y_dtype, "copy", [&]<typename To>() {
    if constexpr (!std::is_same_v<From, To>) {
      launch_elementwise<To>(Convert<To>{}, args.loop, args.y, stream,
                             tensor_operand<From>(args.x));
    }
  });
}

}  // namespace

void convert(const UnaryArgs& args, StreamState& stream) {
  if (args.x_dtype == args.y_dtype) {
    visit_size(args.x_dtype, [&]<typename Bits>() {
      launch_elementwise<Bits>(Identity{}, args.loop, args.y, stream, tensor_operand<Bits>(args.x));
    });
    return;
  }
  visit_all(args.x_dtype, "copy", [&]<typename From>() { convert_from<From>(args, stream); });
}

}  // namespace capstan::gpu

// where, fill and arange: elements are chosen or made up, not computed.

#include <type_traits>

#include "framework/core/dtype_visit.h"
#include "ops/gpu/element_size.cuh"
#include "ops/gpu/elementwise.cuh"

namespace capstan::gpu {
namespace {

struct Choose {
  template <typename T>
  __device__ T operator()(bool condition, T a, T b) const {
    return condition ? a : b;
  }
};

template <typename T>
struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};

// Launch: <<<blocks_for(numel, kBlockSize), kBlockSize>>>. Not contracted to a fused multiply-add,
// so that values equal those of the CPU.
template <typename T>
__global__ void arange_kernel(T* y, std::int64_t numel, double start, double step) {
  for (std::int64_t i = thread_index(); i < numel; i += thread_count()) {
    y[i] = static_cast<T>(__dadd_rn(start, __dmul_rn(static_cast<double>(i), step)));
  }
}

}  // namespace

void where(const WhereArgs& args, StreamState& stream) {
  visit_size(args.dtype, [&]<typename Bits>() {
    launch_elementwise<Bits>(Choose{}, args.loop, args.y, stream,
                             tensor_operand<bool>(args.condition), tensor_operand<Bits>(args.a),
                             tensor_operand<Bits>(args.b));
  });
}

void fill(const FillArgs& args, StreamState& stream) {
  visit_all(args.dtype, "fill", [&]<typename T>() {
    const T value =
        std::is_integral_v<T> ? static_cast<T>(args.int_value) : static_cast<T>(args.value);
    launch_elementwise<T>(Constant<T>{value}, args.loop, args.y, stream);
  });
}

void arange(const ArangeArgs& args, StreamState& stream) {
  visit_all(args.dtype, "arange", [&]<typename T>() {
    arange_kernel<T><<<blocks_for(args.numel, kBlockSize), kBlockSize, 0, native_stream(stream)>>>(
        static_cast<T*>(args.y), args.numel, args.start, args.step);
    CAPSTAN_CHECK_LAUNCH(arange_kernel);
  });
}

}  // namespace capstan::gpu

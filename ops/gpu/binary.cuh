// Turns BinaryArgs into a launch of the elementwise engine; the comparisons, which come in every
// dtype, have a source of their own.
#pragma once

#include <type_traits>

#include "ops/gpu/elementwise.cuh"

namespace capstan::gpu {

/// The operations of `binary` whose result is bool (binary_compare.cu).
void compare(const BinaryArgs& args, StreamState& stream);

/// Enqueues y = op(a, b) for operands of type In, either of which may be the scalar.
template <typename Out, typename In, typename Op>
void launch_binary(Op op, const BinaryArgs& args, StreamState& stream) {
  const auto operand = [&](const Walk& walk, ScalarSide side) {
    // Arithmetic takes the number as it is; comparisons as the tensor would hold it.
    const double number =
        std::is_same_v<Out, bool>
            ? static_cast<double>(static_cast<Compute<In>>(static_cast<In>(args.scalar)))
            : args.scalar;
    return args.scalar_side == side ? number_operand<In>(number) : tensor_operand<In>(walk);
  };
  launch_elementwise<Out>(op, args.loop, args.y, stream, operand(args.a, ScalarSide::left),
                          operand(args.b, ScalarSide::right));
}

}  // namespace capstan::gpu

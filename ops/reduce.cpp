#include "ops/reduce.h"

#include <algorithm>
#include <limits>

#include "framework/runtime/dispatch.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/op_scope.h"
#include "framework/tensor/view.h"
#include "ops/checks.h"
#include "ops/elementwise.h"
#include "ops/loop_nest.h"

namespace capstan::ops {
namespace {

const char* name_of(ReduceOp op) {
  constexpr const char* kNames[] = {"sum", "mean", "max", "min"};
  return kNames[static_cast<int>(op)];
}

/// Which axes of an operand disappear.
struct AxisSet {
  bool reduced[kMaxRank] = {};
};

AxisSet resolve_axes(const char* name, const Axes& axes, int rank) {
  AxisSet set;
  if (axes.empty()) std::fill_n(set.reduced, rank, true);
  for (const std::int64_t wanted : axes) {
    CAPSTAN_CHECK(wanted >= -rank && wanted < rank, IndexError, name, ": axis must be in [", -rank,
                  ", ", rank - 1, "], got ", wanted);
    bool& reduced = set.reduced[wanted < 0 ? wanted + rank : wanted];
    CAPSTAN_CHECK(!reduced, ValueError, name, ": axis ", wanted, " is given twice, got axes ",
                  axes);
    reduced = true;
  }
  return set;
}

Shape reduced_shape(const Shape& shape, const AxisSet& axes, bool keepdim) {
  Shape result;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (!axes.reduced[axis]) result.push_back(shape[axis]);
    if (axes.reduced[axis] && keepdim) result.push_back(1);
  }
  return result;
}

LoopNest plan_outer(const Tensor& x, const AxisSet& axes, std::int64_t (&strides)[kMaxRank]) {
  detail::AxisList list;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (!axes.reduced[axis]) list.add(x.size(axis), x.strides()[axis]);
  }
  return list.finish(strides);
}

/// The order of reduced axes is free, so they go by stride: memory is read front to back.
LoopNest plan_inner(const Tensor& x, const AxisSet& axes, std::int64_t (&strides)[kMaxRank]) {
  int order[kMaxRank];
  int count = 0;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (!axes.reduced[axis]) continue;
    int place = count++;
    for (; place > 0 && x.strides()[order[place - 1]] < x.strides()[axis]; --place) {
      order[place] = order[place - 1];
    }
    order[place] = axis;
  }
  detail::AxisList list;
  for (int i = 0; i < count; ++i) list.add(x.size(order[i]), x.strides()[order[i]]);
  return list.finish(strides);
}

void check_dtype(ReduceOp op, const Tensor& x) {
  if (op == ReduceOp::mean) detail::check_floating("mean", x);
  if (op == ReduceOp::max || op == ReduceOp::min) detail::check_numeric(name_of(op), x);
}

}  // namespace

Tensor reduce(ReduceOp op, const Tensor& x, const Axes& axes, bool keepdim) {
  const char* name = name_of(op);
  check_dtype(op, x);
  const AxisSet set = resolve_axes(name, axes, x.rank());
  if (op == ReduceOp::sum && !is_floating(x.dtype()) && x.dtype() != DType::int64) {
    return reduce(op, cast(x, DType::int64), axes, keepdim);
  }
  const Shape shape = reduced_shape(x.shape(), set, keepdim);
  const bool nothing = x.numel() == 0 && shape.numel() != 0;
  CAPSTAN_CHECK(!nothing || op == ReduceOp::sum || op == ReduceOp::mean, ShapeError, name,
                ": nothing to choose from, got shape ", x.shape(), " and axes ", axes);
  Tensor y = empty(shape, {.dtype = x.dtype(), .device = x.device()});
  if (y.numel() == 0) return y;
  if (nothing) {
    fill(y, op == ReduceOp::sum ? 0.0 : std::numeric_limits<double>::quiet_NaN());
    return y;
  }
  const OpScope scope(name, {&x}, {&y});
  ReduceArgs args;
  args.x = x.raw_data();
  args.y = y.raw_data();
  args.outer = plan_outer(x, set, args.x_outer_strides);
  args.inner = plan_inner(x, set, args.x_inner_strides);
  args.op = op;
  args.dtype = x.dtype();
  dispatch(x.device(), cpu::reduce, gpu::reduce, args);
  return y;
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const int extra = x.rank() - shape.rank();
  CAPSTAN_CHECK(extra >= 0 && broadcast_shapes(x.shape(), shape, "sum_to") == x.shape(), ShapeError,
                "sum_to: ", shape, " does not broadcast to the shape of x, got x of shape ",
                x.shape());
  Axes axes;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (axis < extra || (shape[axis - extra] == 1 && x.size(axis) != 1)) axes.push_back(axis);
  }
  const Tensor y = reduce(ReduceOp::sum, x, axes, true);
  return extra == 0 ? y : view::reshape(y, shape).value();
}

Tensor argmax(const Tensor& x, int axis, bool keepdim) {
  detail::check_numeric("argmax", x);
  const int wanted = normalize_axis(axis, x.rank(), "argmax");
  CAPSTAN_CHECK(x.size(wanted) > 0, ShapeError, "argmax: axis ", axis, " is empty, got shape ",
                x.shape());
  AxisSet set;
  set.reduced[wanted] = true;
  Tensor y =
      empty(reduced_shape(x.shape(), set, keepdim), {.dtype = DType::int64, .device = x.device()});
  if (y.numel() == 0) return y;
  const OpScope scope("argmax", {&x}, {&y});
  ArgmaxArgs args;
  args.x = x.raw_data();
  args.y = y.data<std::int64_t>();
  args.outer = plan_outer(x, set, args.x_outer_strides);
  args.count = x.size(wanted);
  args.inner_stride = x.strides()[wanted];
  args.dtype = x.dtype();
  dispatch(x.device(), cpu::argmax, gpu::argmax, args);
  return y;
}

}  // namespace capstan::ops

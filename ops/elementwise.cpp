#include "ops/elementwise.h"

#include "framework/runtime/dispatch.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/op_scope.h"
#include "framework/tensor/transfer.h"
#include "ops/checks.h"
#include "ops/loop_nest.h"

namespace capstan::ops {
namespace {

void launch(const char* name, UnaryOp op, const Tensor& x, const Tensor& y) {
  if (y.numel() == 0) return;
  const OpScope scope(name, {&x}, {&y});
  UnaryArgs args;
  args.loop = detail::plan_loop(y.shape(), {{y, args.y}, {x, args.x}});
  args.op = op;
  args.x_dtype = x.dtype();
  args.y_dtype = y.dtype();
  dispatch(y.device(), cpu::unary, gpu::unary, args);
}

void launch(BinaryOp op, const Tensor& a, const Tensor& b, const Tensor& y) {
  if (y.numel() == 0) return;
  const OpScope scope(name_of(op), {&a, &b}, {&y});
  BinaryArgs args;
  args.loop = detail::plan_loop(y.shape(), {{y, args.y}, {a, args.a}, {b, args.b}});
  args.scalar = 0.0;
  args.scalar_side = ScalarSide::none;
  args.op = op;
  args.dtype = a.dtype();
  args.y_dtype = y.dtype();
  dispatch(y.device(), cpu::binary, gpu::binary, args);
}

void launch(BinaryOp op, const Tensor& x, double scalar, ScalarSide side, const Tensor& y) {
  if (y.numel() == 0) return;
  const OpScope scope(name_of(op), {&x}, {&y});
  BinaryArgs args;
  Walk& walk = side == ScalarSide::left ? args.b : args.a;
  Walk& unused = side == ScalarSide::left ? args.a : args.b;
  args.loop = detail::plan_loop(y.shape(), {{y, args.y}, {x, walk}});
  unused = Walk{};
  args.scalar = scalar;
  args.scalar_side = side;
  args.op = op;
  args.dtype = x.dtype();
  args.y_dtype = y.dtype();
  dispatch(y.device(), cpu::binary, gpu::binary, args);
}

void check_operand(UnaryOp op, const Tensor& x) {
  switch (op) {
    case UnaryOp::copy:
    case UnaryOp::logical_not: return;
    case UnaryOp::neg:
    case UnaryOp::abs:
    case UnaryOp::sign:
    case UnaryOp::square: return detail::check_numeric(name_of(op), x);
    default: return detail::check_floating(name_of(op), x);
  }
}

bool is_comparison(BinaryOp op) { return op >= BinaryOp::eq && op <= BinaryOp::ge; }

void check_operand(BinaryOp op, const Tensor& x) {
  switch (op) {
    case BinaryOp::add:
    case BinaryOp::sub:
    case BinaryOp::mul:
    case BinaryOp::maximum:
    case BinaryOp::minimum: return detail::check_numeric(name_of(op), x);
    case BinaryOp::logical_and:
    case BinaryOp::logical_or:
      CAPSTAN_CHECK(x.dtype() == DType::boolean, DTypeError, name_of(op), ": needs bool, got ",
                    describe(x), "; compare with 0 first");
      return;
    default: break;
  }
  if (!is_comparison(op)) detail::check_floating(name_of(op), x);
}

void check_operands(BinaryOp op, const Tensor& a, const Tensor& b) {
  detail::check_same_device(name_of(op), a, b);
  detail::check_same_dtype(name_of(op), a, b);
  check_operand(op, a);
}

DType result_dtype(BinaryOp op, DType dtype) { return is_comparison(op) ? DType::boolean : dtype; }

DType result_dtype(UnaryOp op, DType dtype) {
  return op == UnaryOp::logical_not ? DType::boolean : dtype;
}

void check_result(const char* name, const Tensor& y, const Tensor& x, const Shape& shape,
                  DType dtype) {
  detail::check_same_device(name, x, y);
  CAPSTAN_CHECK(y.dtype() == dtype, DTypeError, name, ": the result is ", dtype,
                ", got a y that is ", describe(y));
  CAPSTAN_CHECK(y.shape() == shape, ShapeError, name, ": the result has shape ", shape,
                ", got a y of shape ", y.shape());
  detail::check_writable(name, y);
}

}  // namespace

const char* name_of(UnaryOp op) noexcept {
  constexpr const char* kNames[] = {"copy",  "neg",   "abs",   "sign",  "square",     "exp",
                                    "expm1", "log",   "log1p", "sqrt",  "rsqrt",      "reciprocal",
                                    "sin",   "cos",   "tanh",  "erf",   "sigmoid",    "relu",
                                    "gelu",  "floor", "ceil",  "round", "logical_not"};
  return kNames[static_cast<int>(op)];
}

const char* name_of(BinaryOp op) noexcept {
  constexpr const char* kNames[] = {"add",
                                    "sub",
                                    "mul",
                                    "div",
                                    "pow",
                                    "maximum",
                                    "minimum",
                                    "eq",
                                    "ne",
                                    "lt",
                                    "le",
                                    "gt",
                                    "ge",
                                    "logical_and",
                                    "logical_or",
                                    "relu_backward",
                                    "tanh_backward",
                                    "sigmoid_backward",
                                    "gelu_backward"};
  return kNames[static_cast<int>(op)];
}

Tensor unary(UnaryOp op, const Tensor& x) {
  check_operand(op, x);
  Tensor y = empty(x.shape(), {.dtype = result_dtype(op, x.dtype()), .device = x.device()});
  launch(name_of(op), op, x, y);
  return y;
}

void unary_out(UnaryOp op, const Tensor& x, const Tensor& y) {
  check_operand(op, x);
  check_result(name_of(op), y, x, x.shape(), result_dtype(op, x.dtype()));
  if (detail::overlaps_unevenly(x, y)) return launch(name_of(op), op, clone(x), y);
  launch(name_of(op), op, x, y);
}

Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b) {
  check_operands(op, a, b);
  Tensor y = empty(broadcast_shapes(a.shape(), b.shape(), name_of(op)),
                   {.dtype = result_dtype(op, a.dtype()), .device = a.device()});
  launch(op, a, b, y);
  return y;
}

Tensor binary(BinaryOp op, const Tensor& a, double b) {
  check_operand(op, a);
  detail::check_representable(name_of(op), b, a.dtype());
  Tensor y = empty(a.shape(), {.dtype = result_dtype(op, a.dtype()), .device = a.device()});
  launch(op, a, b, ScalarSide::right, y);
  return y;
}

Tensor binary(BinaryOp op, double a, const Tensor& b) {
  check_operand(op, b);
  detail::check_representable(name_of(op), a, b.dtype());
  Tensor y = empty(b.shape(), {.dtype = result_dtype(op, b.dtype()), .device = b.device()});
  launch(op, b, a, ScalarSide::left, y);
  return y;
}

void binary_out(BinaryOp op, const Tensor& a, const Tensor& b, const Tensor& y) {
  check_operands(op, a, b);
  check_result(name_of(op), y, a, broadcast_shapes(a.shape(), b.shape(), name_of(op)),
               result_dtype(op, a.dtype()));
  if (detail::overlaps_unevenly(a, y)) return binary_out(op, clone(a), b, y);
  if (detail::overlaps_unevenly(b, y)) return binary_out(op, a, clone(b), y);
  launch(op, a, b, y);
}

void binary_out(BinaryOp op, const Tensor& a, double b, const Tensor& y) {
  check_operand(op, a);
  detail::check_representable(name_of(op), b, a.dtype());
  check_result(name_of(op), y, a, a.shape(), result_dtype(op, a.dtype()));
  if (detail::overlaps_unevenly(a, y)) return launch(op, clone(a), b, ScalarSide::right, y);
  launch(op, a, b, ScalarSide::right, y);
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  CAPSTAN_CHECK(condition.dtype() == DType::boolean, DTypeError,
                "where: the condition must be bool, got ", describe(condition));
  detail::check_same_device("where", condition, a);
  detail::check_same_device("where", a, b);
  detail::check_same_dtype("where", a, b);
  const Shape shape =
      broadcast_shapes(broadcast_shapes(a.shape(), b.shape(), "where"), condition.shape(), "where");
  Tensor y = empty(shape, {.dtype = a.dtype(), .device = a.device()});
  if (y.numel() == 0) return y;
  const OpScope scope("where", {&condition, &a, &b}, {&y});
  WhereArgs args;
  args.loop = detail::plan_loop(
      shape, {{y, args.y}, {condition, args.condition}, {a, args.a}, {b, args.b}});
  args.dtype = a.dtype();
  dispatch(y.device(), cpu::where, gpu::where, args);
  return y;
}

Tensor clone(const Tensor& x) {
  Tensor y = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  launch("clone", UnaryOp::copy, x, y);
  return y;
}

Tensor contiguous(const Tensor& x) { return x.is_contiguous() ? x : clone(x); }

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor y = empty(x.shape(), {.dtype = dtype, .device = x.device()});
  launch("cast", UnaryOp::copy, x, y);
  return y;
}

void copy(const Tensor& to, const Tensor& from) {
  CAPSTAN_CHECK(broadcast_shapes(to.shape(), from.shape(), "copy") == to.shape(), ShapeError,
                "copy: cannot shrink shape ", from.shape(), " to ", to.shape());
  detail::check_writable("copy", to);
  if (to.device() == from.device()) {
    if (detail::overlaps_unevenly(from, to)) return launch("copy", UnaryOp::copy, clone(from), to);
    return launch("copy", UnaryOp::copy, from, to);
  }
  const Tensor dense = contiguous(cast(from, to.dtype()));
  if (to.is_contiguous() && to.shape() == dense.shape()) return transfer(to, dense);
  const Tensor arrived = empty(dense.shape(), {.dtype = to.dtype(), .device = to.device()});
  transfer(arrived, dense);
  launch("copy", UnaryOp::copy, arrived, to);
}

void fill(const Tensor& y, double value) {
  detail::check_representable("fill", value, y.dtype());
  if (y.numel() == 0) return;
  const OpScope scope("fill", {}, {&y});
  FillArgs args;
  args.loop = detail::plan_loop(y.shape(), {{y, args.y}});
  args.dtype = y.dtype();
  args.value = value;
  args.int_value = is_floating(y.dtype()) ? 0 : static_cast<std::int64_t>(value);
  dispatch(y.device(), cpu::fill, gpu::fill, args);
}

}  // namespace capstan::ops

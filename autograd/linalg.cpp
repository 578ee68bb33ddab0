#include "autograd/linalg.h"

#include "autograd/autocast_policy.h"
#include "autograd/broadcast.h"
#include "autograd/node.h"
#include "autograd/reduce.h"
#include "ops/matmul.h"

namespace capstan {

using autograd::autocast;
using autograd::autocasts;
using autograd::BackwardContext;
using autograd::CastTo;
using autograd::needs_grad;
using autograd::record;
using autograd::requires_grad;
using autograd::Saved;
using autograd::sum_to;

namespace {

// A left operand of rank 1 is a row, a right one a column; that axis is missing in the result.
[[nodiscard]] Tensor as_row(const Tensor& a) { return a.rank() == 1 ? a.unsqueeze(0) : a; }
[[nodiscard]] Tensor as_column(const Tensor& b) { return b.rank() == 1 ? b.unsqueeze(1) : b; }

[[nodiscard]] Tensor with_missing_axes(Tensor g, int a_rank, int b_rank) {
  if (b_rank == 1) g = g.unsqueeze(-1);
  if (a_rank == 1) g = g.unsqueeze(-2);
  return g;
}

// [..., n] as [rows, n].
[[nodiscard]] Tensor flat_rows(const Tensor& x) {
  if (x.rank() == 2) return x;
  std::int64_t rows = 1;
  for (int axis = 0; axis + 1 < x.rank(); ++axis) rows *= x.size(axis);
  return x.reshape({rows, x.shape().back()});
}

// g b^T for the gradient g of a b.
[[nodiscard]] Tensor left_gradient(const Tensor& g, const Tensor& b, const Shape& a_shape) {
  const Tensor da = matmul(g, as_column(b).t());
  if (a_shape.rank() == 1) return sum_to(da, {1, a_shape[0]}).reshape(a_shape);
  return sum_to(da, a_shape);
}

// a^T g for the gradient g of a b.
[[nodiscard]] Tensor right_gradient(const Tensor& g, const Tensor& a, const Shape& b_shape) {
  const Tensor rows = as_row(a);
  if (b_shape.rank() <= 2) {
    // One product over all rows of all batches, where batches would have to be summed afterwards.
    const Tensor db = matmul(flat_rows(rows).t(), flat_rows(g));
    return b_shape.rank() == 2 ? db : db.reshape(b_shape);
  }
  return sum_to(matmul(rows.t(), g), b_shape);
}

[[nodiscard]] Tensor product(const char* name, const Tensor& a, const Tensor& b) {
  if (autocasts(CastTo::lower, a, b)) [[unlikely]] {
    return product(name, autocast(CastTo::lower, a), autocast(CastTo::lower, b));
  }
  Tensor y = ops::matmul(a, b);
  if (needs_grad(a, b)) {
    record(y, name, {&a, &b},
           [a = requires_grad(b) ? Saved(a) : Saved(), b = requires_grad(a) ? Saved(b) : Saved(),
            a_shape = a.shape(), b_shape = b.shape()](BackwardContext& context) {
             const Tensor g = with_missing_axes(context.grad(), a_shape.rank(), b_shape.rank());
             if (context.needs(0)) context.set(0, left_gradient(g, b.get(context), a_shape));
             if (context.needs(1)) context.set(1, right_gradient(g, a.get(context), b_shape));
           });
  }
  return y;
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, Where where) {
  const CallSite site(where);
  return product("matmul", a, b);
}

Tensor bmm(const Tensor& a, const Tensor& b, Where where) {
  const CallSite site(where);
  CAPSTAN_CHECK(a.rank() == 3 && b.rank() == 3, ShapeError,
                "bmm: needs two tensors of rank 3, got a ", a.shape(), " and b ", b.shape(),
                "; matmul takes other ranks");
  CAPSTAN_CHECK(a.size(0) == b.size(0), ShapeError, "bmm: batch sizes differ, got a ", a.shape(),
                " and b ", b.shape(), "; matmul broadcasts them");
  CAPSTAN_CHECK(a.size(2) == b.size(1), ShapeError, "bmm: inner sizes differ, got a ", a.shape(),
                " and b ", b.shape(), "; a.size(2) must be b.size(1)");
  return product("bmm", a, b);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Where where) {
  const CallSite site(where);
  if (autocasts(CastTo::lower, x, weight, bias)) [[unlikely]] {
    return linear(autocast(CastTo::lower, x), autocast(CastTo::lower, weight),
                  autocast(CastTo::lower, bias), where);
  }
  Tensor y = ops::linear(x, weight, bias);
  if (needs_grad(x, weight, bias)) {
    record(y, "linear", {&x, &weight, &bias},
           [x = requires_grad(weight) ? Saved(x) : Saved(),
            weight = requires_grad(x) ? Saved(weight) : Saved(),
            x_shape = x.shape()](BackwardContext& context) {
             const Tensor g = flat_rows(context.grad());
             if (context.needs(0)) {
               const Tensor dx = matmul(g, weight.get(context));
               context.set(0, x_shape.rank() == 2 ? dx : dx.reshape(x_shape));
             }
             if (context.needs(1)) context.set(1, matmul(g.t(), flat_rows(x.get(context))));
             if (context.needs(2)) context.set(2, sum(g, {0}));
           });
  }
  return y;
}

}  // namespace capstan

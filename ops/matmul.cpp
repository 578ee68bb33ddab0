#include "ops/matmul.h"

#include <algorithm>

#include "framework/runtime/dispatch.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/op_scope.h"
#include "framework/tensor/view.h"
#include "ops/checks.h"
#include "ops/elementwise.h"
#include "ops/kernels.h"

namespace capstan::ops {
namespace {

/// How the last two axes lie in memory: a row-major matrix or the transpose of one.
struct MatrixLayout {
  bool usable;
  bool transposed;
  std::int64_t leading;  // elements between stored rows
};

MatrixLayout matrix_layout(const Tensor& x) {
  const std::int64_t rows = x.size(-2);
  const std::int64_t cols = x.size(-1);
  const std::int64_t row_stride = x.strides()[-2];
  const std::int64_t col_stride = x.strides()[-1];
  // The stride of an axis of size 1 means nothing.
  if ((col_stride == 1 || cols == 1) && (row_stride >= cols || rows == 1)) {
    return {true, false, rows == 1 ? cols : row_stride};
  }
  if ((row_stride == 1 || rows == 1) && (col_stride >= rows || cols == 1)) {
    return {true, true, cols == 1 ? rows : col_stride};
  }
  return {false, false, cols};
}

/// The one stride that walks through all leading axes, 0 if it repeats a matrix.
struct BatchStride {
  bool usable;
  std::int64_t stride;
};

BatchStride batch_stride(const Tensor& x, const Shape& batch) {
  std::int64_t stride = 0;
  std::int64_t inner = 1;  // matrices that the axes so far walk through
  for (int back = 1; back <= batch.rank(); ++back) {
    if (batch[-back] == 1) continue;
    const int axis = x.rank() - 2 - back;
    const std::int64_t here = axis < 0 || x.size(axis) == 1 ? 0 : x.strides()[axis];
    if (inner == 1) {
      stride = here;
    } else if (here != stride * inner) {
      return {false, 0};
    }
    inner *= batch[-back];
  }
  return {true, stride};
}

/// An operand that the kernel can read in place, or a dense copy.
struct Operand {
  Tensor tensor;
  MatrixLayout layout;
  std::int64_t batch_stride;
};

Operand prepare(const Tensor& x, const Shape& batch) {
  const MatrixLayout layout = matrix_layout(x);
  if (!layout.usable) return prepare(clone(x), batch);
  const BatchStride stride = batch_stride(x, batch);
  if (stride.usable) return {x, layout, stride.stride};
  Shape full = batch;
  full.push_back(x.size(-2));
  full.push_back(x.size(-1));
  const Tensor dense = clone(view::expand(x, full));
  return {dense, matrix_layout(dense), x.size(-2) * x.size(-1)};
}

/// y = a b (+ bias), y dense. A batch of row blocks against one matrix is one tall product.
void launch(const char* name, const Operand& a, const Operand& b, const Tensor* bias,
            const Tensor& y, std::int64_t m, std::int64_t n, std::int64_t k) {
  std::int64_t batch = y.numel() / (m * n);
  std::int64_t rows = m;
  const bool tall = b.batch_stride == 0 && !a.layout.transposed &&
                    (batch == 1 || a.batch_stride == m * a.layout.leading);
  if (tall) {
    rows = m * batch;
    batch = 1;
  }
  const Tensor none;
  const OpScope scope(name, {&a.tensor, &b.tensor, bias != nullptr ? bias : &none}, {&y});
  dispatch(y.device(), cpu::matmul, gpu::matmul,
           MatmulArgs{
               .a = a.tensor.raw_data(),
               .b = b.tensor.raw_data(),
               .c = y.raw_data(),
               .bias = bias != nullptr ? bias->raw_data() : nullptr,
               .m = rows,
               .n = n,
               .k = k,
               .batch = batch,
               .lda = a.layout.leading,
               .ldb = b.layout.leading,
               .ldc = n,
               .a_batch_stride = a.batch_stride,
               .b_batch_stride = b.batch_stride,
               .c_batch_stride = m * n,
               .transpose_a = a.layout.transposed,
               .transpose_b = b.layout.transposed,
               .beta = 0.0,
               .dtype = y.dtype(),
           });
}

void check_operands(const char* name, const Tensor& a, const Tensor& b) {
  detail::check_same_device(name, a, b);
  detail::check_same_dtype(name, a, b);
  detail::check_floating(name, a);
}

/// Sizes of the axes before the last two.
Shape leading_axes(const Tensor& x) {
  return Shape(std::span(x.shape().data(), static_cast<std::size_t>(x.rank() - 2)));
}

/// The matrix form of an operand: rank 1 becomes a row or a column.
Tensor product(const Tensor& a, const Tensor& b) {
  const std::int64_t m = a.size(-2);
  const std::int64_t k = a.size(-1);
  const std::int64_t n = b.size(-1);
  const Shape batch = a.rank() == 2 && b.rank() == 2
                          ? Shape()
                          : broadcast_shapes(leading_axes(a), leading_axes(b), "matmul");
  Shape shape = batch;
  shape.push_back(m);
  shape.push_back(n);
  Tensor y = empty(shape, {.dtype = a.dtype(), .device = a.device()});
  if (y.numel() == 0) return y;
  if (k == 0) {
    fill(y, 0.0);
    return y;
  }
  launch("matmul", prepare(a, batch), prepare(b, batch), nullptr, y, m, n, k);
  return y;
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  check_operands("matmul", a, b);
  CAPSTAN_CHECK(a.rank() >= 1 && b.rank() >= 1, ShapeError,
                "matmul: operands need at least one axis, got shapes ", a.shape(), " and ",
                b.shape(), "; multiply by a scalar with *");
  const bool row = a.rank() == 1;
  const bool column = b.rank() == 1;
  CAPSTAN_CHECK(a.shape().back() == b.shape()[column ? 0 : -2], ShapeError,
                "matmul: inner sizes differ, got shapes ", a.shape(), " and ", b.shape(),
                "; the last axis of the first must match the second to last of the second");
  if (!row && !column) return product(a, b);
  const Tensor y = product(row ? view::unsqueeze(a, 0) : a, column ? view::unsqueeze(b, 1) : b);
  const Tensor without_row = row ? view::squeeze(y, -2) : y;
  return column ? view::squeeze(without_row, -1) : without_row;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_operands("linear", x, weight);
  CAPSTAN_CHECK(weight.rank() == 2, ShapeError, "linear: weight must be [out, in], got shape ",
                weight.shape());
  const std::int64_t out = weight.size(0);
  const std::int64_t in = weight.size(1);
  CAPSTAN_CHECK(x.rank() >= 1 && x.shape().back() == in, ShapeError,
                "linear: the last axis of x must be ", in, " to match weight ", weight.shape(),
                ", got x of shape ", x.shape());
  const Tensor* dense_bias = nullptr;
  Tensor held;
  if (bias.defined()) {
    check_operands("linear", x, bias);
    detail::check_shape("linear", "bias", bias, {out});
    held = contiguous(bias);
    dense_bias = &held;
  }
  Shape shape = x.shape();
  shape[-1] = out;
  Tensor y = empty(shape, {.dtype = x.dtype(), .device = x.device()});
  if (y.numel() == 0) return y;
  if (in == 0) {
    fill(y, 0.0);
    if (dense_bias != nullptr) copy(y, held);
    return y;
  }
  // Rows of x that follow each other evenly need no copy.
  Tensor rows = x.rank() == 2 ? x : view::reshape(x, {x.numel() / in, in}).value_or(Tensor());
  if (!rows.defined()) rows = view::reshape(clone(x), {x.numel() / in, in}).value();
  Operand w = prepare(weight, {});
  w.layout.transposed = !w.layout.transposed;
  launch("linear", prepare(rows, {}), w, dense_bias, y, rows.size(0), out, in);
  return y;
}

}  // namespace capstan::ops

#include "ops/softmax.h"

#include <limits>

#include "framework/runtime/dispatch.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/op_scope.h"
#include "framework/tensor/view.h"
#include "ops/checks.h"
#include "ops/elementwise.h"
#include "ops/kernels.h"

namespace capstan::ops {
namespace {

/// `x` with `axis` last, dense.
Tensor rows_along(const Tensor& x, int axis) {
  return contiguous(axis == x.rank() - 1 ? x : view::transpose(x, axis, -1));
}

/// Undoes `rows_along`.
Tensor restore(const Tensor& rows, int axis) {
  if (axis == rows.rank() - 1) return rows;
  return contiguous(view::transpose(rows, axis, -1));
}

int check_axis(const char* name, const Tensor& x, int axis) {
  CAPSTAN_CHECK(x.rank() >= 1, ShapeError, name, ": needs an axis, got a scalar");
  const int wanted = normalize_axis(axis, x.rank(), name);
  CAPSTAN_CHECK(x.size(wanted) >= 1, ShapeError, name, ": axis ", axis, " is empty, got shape ",
                x.shape());
  return wanted;
}

Tensor forward(const char* name, const Tensor& x, int axis, bool log) {
  const int wanted = check_axis(name, x, axis);
  detail::check_floating(name, x);
  const Tensor rows = rows_along(x, wanted);
  const Tensor y = empty(rows.shape(), {.dtype = x.dtype(), .device = x.device()});
  if (x.numel() == 0) return restore(y, wanted);
  {
    const OpScope scope(name, {&rows}, {&y});
    const std::int64_t cols = rows.shape().back();
    dispatch(x.device(), cpu::softmax, gpu::softmax,
             SoftmaxArgs{
                 .x = rows.raw_data(),
                 .y = y.raw_data(),
                 .rows = rows.numel() / cols,
                 .cols = cols,
                 .log = log,
                 .dtype = x.dtype(),
             });
  }
  return restore(y, wanted);
}

Tensor backward(const char* name, const Tensor& grad, const Tensor& y, int axis, bool log) {
  const int wanted = check_axis(name, y, axis);
  detail::check_floating(name, y);
  detail::check_same_device(name, grad, y);
  detail::check_same_dtype(name, grad, y);
  detail::check_shape(name, "grad", grad, y.shape());
  const Tensor y_rows = rows_along(y, wanted);
  const Tensor grad_rows = rows_along(grad, wanted);
  const Tensor dx = empty(y_rows.shape(), {.dtype = y.dtype(), .device = y.device()});
  if (y.numel() == 0) return restore(dx, wanted);
  {
    const OpScope scope(name, {&grad_rows, &y_rows}, {&dx});
    const std::int64_t cols = y_rows.shape().back();
    dispatch(y.device(), cpu::softmax_backward, gpu::softmax_backward,
             SoftmaxBackwardArgs{
                 .grad = grad_rows.raw_data(),
                 .y = y_rows.raw_data(),
                 .dx = dx.raw_data(),
                 .rows = y_rows.numel() / cols,
                 .cols = cols,
                 .log = log,
                 .dtype = y.dtype(),
             });
  }
  return restore(dx, wanted);
}

void check_logits(const char* name, const Tensor& x, const Tensor& labels) {
  CAPSTAN_CHECK(x.rank() == 2 && x.size(1) >= 1, ShapeError, name,
                ": x must be [rows, classes] with at least one class, got shape ", x.shape());
  detail::check_floating(name, x);
  detail::check_shape(name, "labels", labels, {x.size(0)});
  detail::check_index_dtype(name, "labels", labels);
  detail::check_same_device(name, x, labels);
}

double scale_of(Reduction reduction, std::int64_t rows) {
  return reduction == Reduction::mean ? 1.0 / static_cast<double>(rows) : 1.0;
}

}  // namespace

Tensor softmax(const Tensor& x, int axis) { return forward("softmax", x, axis, false); }

Tensor log_softmax(const Tensor& x, int axis) { return forward("log_softmax", x, axis, true); }

Tensor softmax_backward(const Tensor& grad, const Tensor& y, int axis) {
  return backward("softmax_backward", grad, y, axis, false);
}

Tensor log_softmax_backward(const Tensor& grad, const Tensor& y, int axis) {
  return backward("log_softmax_backward", grad, y, axis, true);
}

CrossEntropy cross_entropy(const Tensor& x, const Tensor& labels, Reduction reduction) {
  check_logits("cross_entropy", x, labels);
  if (is_half(x.dtype())) {
    const CrossEntropy wide = cross_entropy(cast(x, DType::float32), labels, reduction);
    return {.loss = cast(wide.loss, x.dtype()), .logsumexp = wide.logsumexp};
  }
  const std::int64_t rows = x.size(0);
  const TensorOptions options{.dtype = x.dtype(), .device = x.device()};
  const Tensor losses = empty({rows}, options);
  const Tensor logsumexp = empty({rows}, options);
  const Tensor reduced = reduction == Reduction::none ? Tensor() : empty({}, options);
  const Tensor& loss = reduced.defined() ? reduced : losses;
  if (rows == 0) {
    if (reduction == Reduction::sum) fill(loss, 0.0);
    if (reduction == Reduction::mean) fill(loss, std::numeric_limits<double>::quiet_NaN());
    return {.loss = loss, .logsumexp = logsumexp};
  }
  const Tensor logits = contiguous(x);
  const Tensor dense_labels = contiguous(labels);
  const OpScope scope("cross_entropy", {&logits, &dense_labels}, {&losses, &logsumexp, &reduced});
  dispatch(x.device(), cpu::cross_entropy, gpu::cross_entropy,
           CrossEntropyArgs{
               .x = logits.raw_data(),
               .labels = dense_labels.raw_data(),
               .loss = losses.raw_data(),
               .logsumexp = logsumexp.raw_data(),
               .reduced = reduced.defined() ? reduced.raw_data() : nullptr,
               .scale = scale_of(reduction, rows),
               .rows = rows,
               .cols = x.size(1),
               .dtype = x.dtype(),
               .label_dtype = labels.dtype(),
               .faults = fault_record(x.device()),
               .site = register_fault_site("cross_entropy", "label"),
           });
  raise_faults_if_done(x.device());
  return {.loss = loss, .logsumexp = logsumexp};
}

Tensor cross_entropy_backward(const Tensor& grad, const Tensor& x, const Tensor& labels,
                              const Tensor& logsumexp, Reduction reduction) {
  constexpr const char* kName = "cross_entropy_backward";
  check_logits(kName, x, labels);
  const std::int64_t rows = x.size(0);
  const bool per_row = reduction == Reduction::none;
  detail::check_shape(kName, "grad", grad, per_row ? Shape{rows} : Shape{});
  detail::check_shape(kName, "logsumexp", logsumexp, {rows});
  detail::check_same_device(kName, x, grad);
  detail::check_same_dtype(kName, x, grad);
  if (is_half(x.dtype())) {
    const Tensor wide = cross_entropy_backward(cast(grad, DType::float32), cast(x, DType::float32),
                                               labels, logsumexp, reduction);
    return cast(wide, x.dtype());
  }
  detail::check_same_device(kName, x, logsumexp);
  detail::check_same_dtype(kName, x, logsumexp);
  Tensor dx = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  if (x.numel() == 0) return dx;
  const Tensor dense_grad = contiguous(grad);
  const Tensor logits = contiguous(x);
  const Tensor dense_labels = contiguous(labels);
  const Tensor dense_logsumexp = contiguous(logsumexp);
  const OpScope scope(kName, {&dense_grad, &logits, &dense_labels, &dense_logsumexp}, {&dx});
  dispatch(x.device(), cpu::cross_entropy_backward, gpu::cross_entropy_backward,
           CrossEntropyBackwardArgs{
               .grad = dense_grad.raw_data(),
               .x = logits.raw_data(),
               .labels = dense_labels.raw_data(),
               .logsumexp = dense_logsumexp.raw_data(),
               .dx = dx.raw_data(),
               .scale = scale_of(reduction, rows),
               .rows = rows,
               .cols = x.size(1),
               .grad_is_scalar = !per_row,
               .dtype = x.dtype(),
               .label_dtype = labels.dtype(),
           });
  return dx;
}

}  // namespace capstan::ops

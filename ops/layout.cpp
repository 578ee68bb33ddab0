#include "ops/layout.h"

#include "framework/runtime/dispatch.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/op_scope.h"
#include "framework/tensor/view.h"
#include "ops/checks.h"
#include "ops/elementwise.h"
#include "ops/loop_nest.h"

namespace capstan::ops {
namespace {

/// x seen as [outer, axis, inner].
struct Blocks {
  std::int64_t outer = 1;
  std::int64_t inner = 1;
};

Blocks blocks_around(const Shape& shape, int axis) {
  Blocks blocks;
  for (int i = 0; i < axis; ++i) blocks.outer *= shape[i];
  for (int i = axis + 1; i < shape.rank(); ++i) blocks.inner *= shape[i];
  return blocks;
}

void check_index(const char* name, const Tensor& x, int axis, const Tensor& index, bool shared) {
  detail::check_index_dtype(name, "index", index);
  detail::check_same_device(name, x, index);
  if (shared) {
    CAPSTAN_CHECK(index.rank() == 1, ShapeError, name, ": index must have one axis, got shape ",
                  index.shape());
    return;
  }
  Shape want = x.shape();
  if (index.rank() == x.rank()) want[axis] = index.size(axis);
  CAPSTAN_CHECK(index.shape() == want, ShapeError, name,
                ": index must have the sizes of x except along axis ", axis, ", got index ",
                index.shape(), " and x ", x.shape());
}

Tensor forward(const char* name, const Tensor& x, int axis, const Tensor& index, bool shared) {
  const int wanted = normalize_axis(axis, x.rank(), name);
  check_index(name, x, wanted, index, shared);
  const std::int64_t count = shared ? index.size(0) : index.size(wanted);
  Shape shape = x.shape();
  shape[wanted] = count;
  Tensor y = empty(shape, {.dtype = x.dtype(), .device = x.device()});
  if (y.numel() == 0) return y;
  const Tensor dense = contiguous(x);
  const Tensor dense_index = contiguous(index);
  const Blocks blocks = blocks_around(shape, wanted);
  const OpScope scope(name, {&dense, &dense_index}, {&y});
  dispatch(x.device(), cpu::gather, gpu::gather,
           GatherArgs{
               .x = dense.raw_data(),
               .index = dense_index.raw_data(),
               .y = y.raw_data(),
               .outer = blocks.outer,
               .axis = x.size(wanted),
               .inner = blocks.inner,
               .count = count,
               .shared_index = shared,
               .dtype = x.dtype(),
               .index_dtype = index.dtype(),
               .faults = fault_record(x.device()),
               .site = register_fault_site(name, "index"),
           });
  raise_faults_if_done(x.device());
  return y;
}

Tensor backward(const char* name, const Tensor& grad, int axis, const Tensor& index,
                const Shape& x_shape, bool shared) {
  const int wanted = normalize_axis(axis, x_shape.rank(), name);
  detail::check_floating(name, grad);
  if (is_half(grad.dtype())) {
    const Tensor wide = cast(grad, DType::float32);
    return cast(backward(name, wide, axis, index, x_shape, shared), grad.dtype());
  }
  detail::check_index_dtype(name, "index", index);
  detail::check_same_device(name, grad, index);
  CAPSTAN_CHECK(index.rank() == (shared ? 1 : x_shape.rank()), ShapeError, name,
                ": index has the wrong rank, got shape ", index.shape(), " for x of shape ",
                x_shape);
  const std::int64_t count = shared ? index.size(0) : index.size(wanted);
  Shape grad_shape = x_shape;
  grad_shape[wanted] = count;
  detail::check_shape(name, "grad", grad, grad_shape);
  if (!shared) detail::check_shape(name, "index", index, grad_shape);
  Tensor dx = empty(x_shape, {.dtype = grad.dtype(), .device = grad.device()});
  if (dx.numel() == 0) return dx;
  if (grad.numel() == 0) {
    fill(dx, 0.0);
    return dx;
  }
  const Tensor dense = contiguous(grad);
  const Tensor dense_index = contiguous(index);
  const Blocks blocks = blocks_around(x_shape, wanted);
  const OpScope scope(name, {&dense, &dense_index}, {&dx});
  dispatch(grad.device(), cpu::gather_backward, gpu::gather_backward,
           GatherBackwardArgs{
               .grad = dense.raw_data(),
               .index = dense_index.raw_data(),
               .dx = dx.raw_data(),
               .outer = blocks.outer,
               .axis = x_shape[wanted],
               .inner = blocks.inner,
               .count = count,
               .shared_index = shared,
               .dtype = grad.dtype(),
               .index_dtype = index.dtype(),
           });
  return dx;
}

/// Copies `part` into the slice of `y` that begins at `begin` along `axis`.
void copy_into(const Tensor& y, int axis, std::int64_t begin, const Tensor& part) {
  const Tensor place = view::slice(y, axis, begin, begin + part.size(axis), 1);
  UnaryArgs args;
  args.loop = detail::plan_loop(part.shape(), {{place, args.y}, {part, args.x}});
  args.op = UnaryOp::copy;
  args.x_dtype = part.dtype();
  args.y_dtype = y.dtype();
  dispatch(y.device(), cpu::unary, gpu::unary, args);
}

}  // namespace

Tensor cat(const std::vector<Tensor>& tensors, int axis) {
  CAPSTAN_CHECK(!tensors.empty(), ValueError, "cat: needs at least one tensor, got none");
  const Tensor& first = tensors.front();
  const int wanted = normalize_axis(axis, first.rank(), "cat");
  Shape shape = first.shape();
  shape[wanted] = 0;
  std::vector<const Tensor*> reads;
  reads.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    const std::size_t position = reads.size();
    CAPSTAN_CHECK(tensor.device() == first.device(), DeviceError, "cat: tensor ", position,
                  " is on another device, got ", describe(tensor), " after ", describe(first));
    CAPSTAN_CHECK(tensor.dtype() == first.dtype(), DTypeError, "cat: tensor ", position,
                  " has another dtype, got ", describe(tensor), " after ", describe(first));
    Shape want = first.shape();
    if (tensor.rank() == first.rank()) want[wanted] = tensor.size(wanted);
    CAPSTAN_CHECK(tensor.shape() == want, ShapeError, "cat: tensor ", position,
                  " differs in more than axis ", axis, ", got ", tensor.shape(), " after ",
                  first.shape());
    shape[wanted] += tensor.size(wanted);
    reads.push_back(&tensor);
  }
  Tensor y = empty(shape, {.dtype = first.dtype(), .device = first.device()});
  if (y.numel() == 0) return y;
  const Tensor* const write = &y;
  const OpScope scope("cat", std::span<const Tensor* const>(reads), std::span(&write, 1));
  std::int64_t begin = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.numel() != 0) copy_into(y, wanted, begin, tensor);
    begin += tensor.size(wanted);
  }
  return y;
}

Tensor gather(const Tensor& x, int axis, const Tensor& index) {
  return forward("gather", x, axis, index, false);
}

Tensor gather_backward(const Tensor& grad, int axis, const Tensor& index, const Shape& x_shape) {
  return backward("gather_backward", grad, axis, index, x_shape, false);
}

Tensor index_select(const Tensor& x, int axis, const Tensor& index) {
  return forward("index_select", x, axis, index, true);
}

Tensor index_select_backward(const Tensor& grad, int axis, const Tensor& index,
                             const Shape& x_shape) {
  return backward("index_select_backward", grad, axis, index, x_shape, true);
}

Tensor one_hot(const Tensor& labels, std::int64_t classes, DType dtype) {
  detail::check_index_dtype("one_hot", "labels", labels);
  CAPSTAN_CHECK(classes >= 1, ValueError, "one_hot: needs at least one class, got ", classes);
  Shape shape = labels.shape();
  shape.push_back(classes);
  Tensor y = empty(shape, {.dtype = dtype, .device = labels.device()});
  if (y.numel() == 0) return y;
  const Tensor dense = contiguous(labels);
  const OpScope scope("one_hot", {&dense}, {&y});
  dispatch(labels.device(), cpu::one_hot, gpu::one_hot,
           OneHotArgs{
               .labels = dense.raw_data(),
               .y = y.raw_data(),
               .rows = labels.numel(),
               .classes = classes,
               .dtype = dtype,
               .label_dtype = labels.dtype(),
               .faults = fault_record(labels.device()),
               .site = register_fault_site("one_hot", "label"),
           });
  raise_faults_if_done(labels.device());
  return y;
}

}  // namespace capstan::ops

#include "framework/tensor/factory.h"

#include "framework/core/counters.h"
#include "framework/runtime/runtime.h"
#include "framework/runtime/stream.h"
#include "framework/tensor/op_scope.h"

namespace capstan {
namespace {

Tensor make_dense(Ref<Storage> storage, const Shape& shape, std::int64_t numel, DType dtype) {
  auto impl = make_ref<TensorImpl>();
  impl->storage = std::move(storage);
  impl->shape = shape;
  impl->strides = contiguous_strides(shape);
  impl->numel = numel;
  impl->dtype = dtype;
  return Tensor(std::move(impl));
}

// The number of elements, checked.
std::int64_t checked_numel(const Shape& shape, const char* op) {
  std::int64_t numel = 1;
  for (const std::int64_t size : shape) {
    CAPSTAN_CHECK(size >= 0, ShapeError, op, ": sizes must not be negative, got ", shape);
    CAPSTAN_CHECK(!__builtin_mul_overflow(numel, size, &numel) && numel < (std::int64_t{1} << 60),
                  ShapeError, op, ": too many elements, got ", shape);
  }
  return numel;
}

}  // namespace

Tensor empty(const Shape& shape, TensorOptions options) {
  const std::int64_t numel = checked_numel(shape, "empty");
  const std::size_t bytes = static_cast<std::size_t>(numel) * size_of(options.dtype);
  return make_dense(make_ref<Storage>(options.device, bytes), shape, numel, options.dtype);
}

Tensor empty_like(const Tensor& other) {
  return empty(other.shape(), {.dtype = other.dtype(), .device = other.device()});
}

Tensor zeros(const Shape& shape, TensorOptions options, Where where) {
  const CallSite site(where);
  Tensor y = empty(shape, options);
  if (y.numel() == 0) return y;
  const OpScope scope("zeros", {}, {&y});
  StreamState& stream = detail::current_stream_state(options.device);
  detail::count(counters().dispatches);
  stream.runtime.fill(y.raw_data(), 0, y.storage()->bytes(), stream);
  return y;
}

Tensor zeros_like(const Tensor& other, Where where) {
  return zeros(other.shape(), {.dtype = other.dtype(), .device = other.device()}, where);
}

Tensor from_blob(void* data, const Shape& shape, TensorOptions options,
                 std::function<void()> release) {
  const std::int64_t numel = checked_numel(shape, "from_blob");
  CAPSTAN_CHECK(data != nullptr || numel == 0, ValueError, "from_blob: data is null for shape ",
                shape);
  const std::size_t bytes = static_cast<std::size_t>(numel) * size_of(options.dtype);
  return make_dense(make_ref<Storage>(options.device, data, bytes, std::move(release)), shape,
                    numel, options.dtype);
}

Tensor from_pinned(const PinnedBuffer& buffer, const Shape& shape, DType dtype) {
  const std::size_t bytes =
      static_cast<std::size_t>(checked_numel(shape, "from_pinned")) * size_of(dtype);
  CAPSTAN_CHECK(bytes <= buffer.bytes(), ValueError, "from_pinned: shape ", shape, " of ", dtype,
                " needs ", bytes, " bytes, the buffer has ", buffer.bytes(),
                "; make a larger buffer");
  return from_blob(buffer.data(), shape, {.dtype = dtype},
                   [memory = buffer.memory()]() mutable { memory = nullptr; });
}

}  // namespace capstan

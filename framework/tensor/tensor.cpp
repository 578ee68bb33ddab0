#include "framework/tensor/tensor.h"

#include <cstring>

#include "framework/core/dtype_visit.h"
#include "framework/runtime/forbidden.h"
#include "framework/runtime/runtime.h"
#include "framework/runtime/stream.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/host_values.h"
#include "framework/tensor/op_scope.h"

namespace capstan {

void Tensor::throw_undefined() {
  throw StateError("tensor: this tensor is undefined; assign a result to it first");
}

bool Tensor::is_contiguous() const {
  const TensorImpl& impl = checked();
  std::int64_t step = 1;
  for (int axis = impl.shape.rank() - 1; axis >= 0; --axis) {
    const std::int64_t size = impl.shape.data()[axis];
    if (size == 0) return true;
    if (size != 1 && impl.strides.data()[axis] != step) return false;
    step *= size;
  }
  return true;
}

void* Tensor::raw_data() const {
  const TensorImpl& impl = checked();
  return static_cast<std::byte*>(impl.storage->data()) +
         impl.offset * static_cast<std::int64_t>(size_of(impl.dtype));
}

template <typename T>
Tensor Tensor::from_vector(const Shape& shape, const std::vector<T>& values, Device device,
                           Where where) {
  const CallSite site(where);
  const auto count = static_cast<std::int64_t>(values.size());
  CAPSTAN_CHECK(shape.numel() == count, ShapeError, "from_vector: shape ", shape, " needs ",
                shape.numel(), " values, got ", count);
  refuse_while_capturing(device, Forbidden::from_vector);
  Tensor y = empty(shape, {.dtype = dtype_of<T>, .device = device});
  if (count == 0) return y;
  const OpScope scope("from_vector", {}, {&y});
  StreamState& stream = detail::current_stream_state(device);
  stream.runtime.make_current();
  if constexpr (std::is_same_v<T, bool>) {
    const std::vector<std::uint8_t> bytes(values.begin(), values.end());
    stream.runtime.copy(y.raw_data(), bytes.data(), bytes.size(), stream);
  } else {
    stream.runtime.copy(y.raw_data(), values.data(), values.size() * sizeof(T), stream);
  }
  stream.runtime.synchronize_stream(stream);  // the values may go now
  return y;
}

void Tensor::record_stream(const Stream& stream, Where where) const {
  const CallSite site(where);
  storage()->record_stream(stream);
}

template <typename T>
std::vector<T> Tensor::to_vector(Where where) const {
  const CallSite site(where);
  const std::vector<std::byte> bytes = detail::host_bytes(*this, Forbidden::to_vector);
  return visit_all(dtype(), "to_vector", [&]<typename S>() {
    std::vector<T> values(static_cast<std::size_t>(numel()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      S element;
      std::memcpy(&element, bytes.data() + i * sizeof(S), sizeof(S));
      values[i] = static_cast<T>(element);
    }
    return values;
  });
}

template <typename T>
T Tensor::item(Where where) const {
  const CallSite site(where);
  CAPSTAN_CHECK(numel() == 1, ShapeError, "item: needs exactly one element, got shape ", shape());
  const std::vector<std::byte> bytes = detail::host_bytes(*this, Forbidden::item);
  return visit_all(dtype(), "item", [&]<typename S>() {
    S element;
    std::memcpy(&element, bytes.data(), sizeof(S));
    return static_cast<T>(element);
  });
}

#define CAPSTAN_INSTANTIATE(T)                                                                \
  template Tensor Tensor::from_vector<T>(const Shape&, const std::vector<T>&, Device, Where); \
  template std::vector<T> Tensor::to_vector<T>(Where) const;                                  \
  template T Tensor::item<T>(Where) const;
CAPSTAN_INSTANTIATE(float)
CAPSTAN_INSTANTIATE(double)
CAPSTAN_INSTANTIATE(Float16)
CAPSTAN_INSTANTIATE(BFloat16)
CAPSTAN_INSTANTIATE(std::int64_t)
CAPSTAN_INSTANTIATE(std::int32_t)
CAPSTAN_INSTANTIATE(std::uint8_t)
CAPSTAN_INSTANTIATE(bool)
#undef CAPSTAN_INSTANTIATE

std::string describe(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return detail::concat(tensor.dtype(), tensor.shape(), " on ", tensor.device());
}

}  // namespace capstan

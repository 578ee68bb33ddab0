#include "framework/tensor/host_values.h"

#include <cstring>

#include "framework/runtime/faults.h"
#include "framework/runtime/runtime.h"
#include "framework/runtime/stream.h"
#include "framework/tensor/op_scope.h"

namespace capstan {
namespace {

const char* name_of(Forbidden call) {
  return forbidden_table()[static_cast<std::size_t>(call)].operation;
}

// Brings `count` elements from the first one of `x` to the host.
std::vector<std::byte> fetch(const Tensor& x, std::int64_t count, Forbidden call) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size_of(x.dtype()));
  if (x.device().is_host()) {
    std::memcpy(bytes.data(), x.raw_data(), bytes.size());
    return bytes;
  }
  const OpScope scope(name_of(call), {&x}, {});
  StreamState& stream = detail::current_stream_state(x.device());
  stream.runtime.make_current();
  stream.runtime.copy(bytes.data(), x.raw_data(), bytes.size(), stream);
  stream.runtime.synchronize_stream(stream);
  return bytes;
}

std::vector<std::byte> gather(const Tensor& x, const std::vector<std::byte>& from) {
  const std::size_t size = size_of(x.dtype());
  std::vector<std::byte> bytes(static_cast<std::size_t>(x.numel()) * size);
  Shape index = Shape::filled(x.rank(), 0);
  std::int64_t at = 0;
  for (std::size_t to = 0; to < bytes.size(); to += size) {
    std::memcpy(bytes.data() + to, from.data() + static_cast<std::size_t>(at) * size, size);
    for (int axis = x.rank() - 1; axis >= 0; --axis) {
      at += x.strides()[axis];
      if (++index[axis] < x.size(axis)) break;
      at -= x.strides()[axis] * x.size(axis);
      index[axis] = 0;
    }
  }
  return bytes;
}

}  // namespace

std::vector<std::byte> detail::host_bytes(const Tensor& x, Forbidden call) {
  refuse_while_capturing(x.device(), call);
  if (x.numel() == 0) return {};
  std::vector<std::byte> bytes = x.is_contiguous()
                                     ? fetch(x, x.numel(), call)
                                     : gather(x, fetch(x, reach_of(x.shape(), x.strides()), call));
  raise_faults(x.device());
  return bytes;
}

}  // namespace capstan

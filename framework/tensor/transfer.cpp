#include "framework/tensor/transfer.h"

#include <cassert>

#include "framework/core/counters.h"
#include "framework/runtime/faults.h"
#include "framework/runtime/forbidden.h"
#include "framework/runtime/runtime.h"
#include "framework/runtime/stream.h"
#include "framework/tensor/op_scope.h"

namespace capstan {
namespace {

std::size_t bytes_of(const Tensor& x) {
  return static_cast<std::size_t>(x.numel()) * size_of(x.dtype());
}

}  // namespace

void transfer(const Tensor& to, const Tensor& from) {
  assert(to.is_contiguous() && from.is_contiguous());
  assert(to.shape() == from.shape() && to.dtype() == from.dtype());
  if (to.numel() == 0) return;
  const Device place = to.device().is_gpu() ? to.device() : from.device();
  const bool crosses = to.device().is_cpu() != from.device().is_cpu();
  if (crosses) {
    for (const Device device : {to.device(), from.device()}) {
      refuse_while_capturing(device, Forbidden::copy_across);
    }
  }
  const OpScope scope("copy", {&from}, {&to});
  StreamState& stream = detail::current_stream_state(place);
  detail::count(counters().dispatches);
  stream.runtime.make_current();
  stream.runtime.copy(to.raw_data(), from.raw_data(), bytes_of(to), stream);
  if (crosses) {
    stream.runtime.synchronize_stream(stream);
    raise_faults(place);
  }
}

void transfer_from_pinned(const Tensor& to, const void* pinned) {
  assert(to.is_contiguous());
  if (to.numel() == 0) return;
  const OpScope scope("copy_from_pinned", {}, {&to});
  StreamState& stream = detail::current_stream_state(to.device());
  detail::count(counters().dispatches);
  stream.runtime.make_current();
  stream.runtime.copy(to.raw_data(), pinned, bytes_of(to), stream);
}

}  // namespace capstan

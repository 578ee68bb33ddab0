#include "framework/tensor/transfer.h"

#include <cassert>

#include "framework/core/counters.h"
#include "framework/core/error.h"
#include "framework/memory/caching_allocator.h"
#include "framework/runtime/capture_session.h"
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

// The page-locked memory that a captured copy to a device reads; null if it reads none.
Ref<PinnedMemory> captured_source(const Tensor& to, const Tensor& from) {
  if (to.device().is_host() || !from.device().is_host()) return {};
  if (!is_current_stream_capturing(to.device())) return {};
  return allocator(to.device()).pinned().find(from.raw_data(), bytes_of(from));
}

void submit(const Tensor& to, const void* from, StreamState& stream) {
  detail::count(counters().dispatches);
  stream.runtime.make_current();
  stream.runtime.copy(to.raw_data(), from, bytes_of(to), stream);
}

// Whose stream copies.
Device copying_device(Device to, Device from) {
  if (to.is_gpu() || from.is_host()) return to;
  return from.is_gpu() || to.is_host() ? from : to;
}

// Orders a copy on `copying` after the other device's current stream, and that one after the copy.
class BothDevices {
 public:
  BothDevices(Device to, Device from, StreamState& copying) : copying_(copying) {
    if (to == from || to.is_host() || from.is_host()) return;
    other_ = &detail::current_stream_state(to == copying.device ? from : to);
    copying_stream().wait_stream(other_stream());
  }
  void leave() const {
    if (other_ != nullptr) other_stream().wait_stream(copying_stream());
  }

 private:
  [[nodiscard]] Stream copying_stream() const { return Stream(Ref<StreamState>(&copying_)); }
  [[nodiscard]] Stream other_stream() const { return Stream(Ref<StreamState>(other_)); }

  StreamState& copying_;
  StreamState* other_ = nullptr;
};

}  // namespace

void transfer(const Tensor& to, const Tensor& from) {
  assert(to.is_contiguous() && from.is_contiguous());
  assert(to.shape() == from.shape() && to.dtype() == from.dtype());
  if (to.numel() == 0) return;
  const Device place = copying_device(to.device(), from.device());
  const bool crosses = to.device().is_host() != from.device().is_host();
  const Ref<PinnedMemory> pinned = captured_source(to, from);
  if (crosses) {
    if (!pinned) refuse_while_capturing(place, Forbidden::copy_across);
    if (!pinned || is_current_stream_capturing(Device::cpu())) {
      refuse_while_capturing(Device::cpu(), Forbidden::copy_across);
    }
  } else if (to.device() != from.device()) {
    refuse_another_device("copy", to.device());
    refuse_another_device("copy", from.device());
  }
  StreamState& stream = detail::current_stream_state(place);
  const BothDevices order(to.device(), from.device(), stream);
  const OpScope scope("copy", {&from}, {&to});
  submit(to, from.raw_data(), stream);
  if (pinned) return allocator(place).pinned().record_use(pinned, stream);
  if (crosses) {
    stream.runtime.synchronize_stream(stream);
    raise_faults(place);
  } else {
    order.leave();
  }
}

void transfer_from_pinned(const Tensor& to, const PinnedBuffer& from) {
  assert(to.is_contiguous());
  CAPSTAN_CHECK(bytes_of(to) <= from.bytes(), ValueError, "copy_from_pinned: the buffer has ",
                from.bytes(), " bytes and the tensor ", bytes_of(to), "; make a larger buffer");
  if (to.numel() == 0) return;
  const OpScope scope("copy_from_pinned", {}, {&to});
  const Stream stream = current_stream(to.device());
  submit(to, from.data(), stream.state());
  from.record_use(stream);
}

}  // namespace capstan

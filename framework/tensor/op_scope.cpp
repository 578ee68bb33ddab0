#include "framework/tensor/op_scope.h"

#include "framework/runtime/capture_probe.h"
#include "framework/runtime/stream.h"

namespace capstan {
namespace {

Access access_of(const Tensor& tensor) {
  return {.address = tensor.raw_data(),
          .bytes = reach_of(tensor.shape(), tensor.strides()) *
                   static_cast<std::int64_t>(size_of(tensor.dtype())),
          .pool = tensor.storage()->pool(),
          .owner = tensor.storage().get(),
          .dtype = tensor.dtype(),
          .shape = tensor.shape(),
          .strides = tensor.strides()};
}

std::vector<Access> accesses(std::span<const Tensor* const> tensors) {
  std::vector<Access> result;
  for (const Tensor* tensor : tensors) {
    if (tensor->defined() && tensor->numel() != 0) result.push_back(access_of(*tensor));
  }
  return result;
}

std::string describe_all(std::span<const Tensor* const> tensors) {
  std::string text;
  for (const Tensor* tensor : tensors) {
    if (!tensor->defined()) continue;
    text += detail::concat(text.empty() ? "" : ", ", tensor->dtype(), tensor->shape());
  }
  return text;
}

const Tensor* first_defined(std::span<const Tensor* const> tensors) {
  for (const Tensor* tensor : tensors) {
    if (tensor->defined()) return tensor;
  }
  return nullptr;
}

}  // namespace

void OpScope::announce(const char* name, std::span<const Tensor* const> reads,
                       std::span<const Tensor* const> writes) {
  detail::probe_capture(detail::CapturePoint::operation);
  if (WriteJournal* const journal = WriteJournal::current()) {
    for (const Tensor* tensor : writes) {
      if (tensor->defined()) journal->keep(tensor->storage());
    }
  }
  if (detail::memory_histories.load(std::memory_order_relaxed) != 0) {
    for (const Tensor* tensor : writes) {
      if (tensor->defined()) tensor->storage()->name_allocation(name);
    }
  }
  const Tensor* place = first_defined(writes);
  if (place == nullptr) place = first_defined(reads);
  if (place == nullptr) return;
  StreamState& stream = detail::current_stream_state(place->device());
  if (CaptureSession* const session = stream.session()) {
    session->announce(name, stream, accesses(reads), accesses(writes), describe_all(reads));
    for (const auto& tensors : {reads, writes}) {
      for (const Tensor* tensor : tensors) {
        if (tensor->defined()) tensor->storage()->record_operation(stream, *session);
      }
    }
  }
}

}  // namespace capstan

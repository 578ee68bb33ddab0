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

// The device whose stream runs the operation; host tensors do not count beside others.
const Tensor* place_of(std::span<const Tensor* const> reads,
                       std::span<const Tensor* const> writes) {
  const Tensor* on_host = nullptr;
  for (const auto& tensors : {writes, reads}) {
    for (const Tensor* tensor : tensors) {
      if (!tensor->defined()) continue;
      if (!tensor->device().is_host()) return tensor;
      if (on_host == nullptr) on_host = tensor;
    }
  }
  return on_host;
}

}  // namespace

void OpScope::announce(const char* name, std::span<const Tensor* const> reads,
                       std::span<const Tensor* const> writes) {
  if (detail::active_captures() != 0 || WriteJournal::current() != nullptr) {
    detail::probe_capture(detail::CapturePoint::operation);
  }
  const Tensor* const place = place_of(reads, writes);
  if (place == nullptr) return;
  StreamState& stream = detail::current_stream_state(place->device());
  CaptureSession* const session = stream.session();
  if (session == nullptr) {
    refuse_another_device(name, place->device());
    if (detail::checks_operations.load(std::memory_order_relaxed)) {
      RecordedOp operation;
      operation.name = name;
      operation.where = detail::call_context.where;
      operation.module = detail::module_path();
      operation.stream = stream.id;
      operation.reads = accesses(reads);
      operation.writes = accesses(writes);
      detail::check_operation(std::move(operation), stream);
    }
  }
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
  if (session == nullptr) return;
  session->announce(name, stream, accesses(reads), accesses(writes), describe_all(reads));
  for (const auto& tensors : {reads, writes}) {
    for (const Tensor* tensor : tensors) {
      if (tensor->defined()) tensor->storage()->record_operation(stream, *session);
    }
  }
}

}  // namespace capstan

#include "ops/optimizer_step.h"

#include <algorithm>
#include <array>

#include "framework/runtime/dispatch.h"
#include "framework/tensor/op_scope.h"
#include "ops/checks.h"
#include "ops/kernels.h"

namespace capstan::ops {
namespace {

void check_part(const char* name, const char* what, const Tensor& part, const Tensor& parameter) {
  CAPSTAN_CHECK(part.defined(), StateError, name, ": ", what, " is undefined for a parameter ",
                describe(parameter));
  detail::check_same_device(name, parameter, part);
  detail::check_same_dtype(name, parameter, part);
  detail::check_shape(name, what, part, parameter.shape());
  CAPSTAN_CHECK(part.is_contiguous(), ShapeError, name, ": ", what, " must be dense, got strides ",
                part.strides());
}

void check_slot(const char* name, const ParameterSlot& slot, const ParameterSlot& first) {
  detail::check_floating(name, slot.parameter);
  detail::check_same_device(name, first.parameter, slot.parameter);
  detail::check_same_dtype(name, first.parameter, slot.parameter);
  check_part(name, "parameter", slot.parameter, slot.parameter);
  check_part(name, "grad", slot.grad, slot.parameter);
}

void check_scalars(const char* name, const Tensor& hyper, std::int64_t count, const Tensor& step,
                   const std::vector<ParameterSlot>& slots) {
  detail::check_shape(name, "hyper", hyper, {count});
  CAPSTAN_CHECK(hyper.dtype() == DType::float64 && hyper.is_contiguous(), DTypeError, name,
                ": hyper must be dense float64, got ", describe(hyper));
  CAPSTAN_CHECK(step.dtype() == DType::int64 && step.numel() == 1, DTypeError, name,
                ": step must be one int64, got ", describe(step));
  detail::check_same_device(name, hyper, step);
  if (!slots.empty()) detail::check_same_device(name, slots.front().parameter, step);
}

void* address_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.raw_data() : nullptr;
}

/// What one launch reads and writes, on the stack: a step allocates nothing.
class Announcement {
 public:
  void read(const Tensor& tensor) { reads_[reads_used_++] = &tensor; }
  void write(const Tensor& tensor) { writes_[writes_used_++] = &tensor; }
  [[nodiscard]] std::span<const Tensor* const> reads() const {
    return {reads_.data(), reads_used_};
  }
  [[nodiscard]] std::span<const Tensor* const> writes() const {
    return {writes_.data(), writes_used_};
  }

 private:
  std::array<const Tensor*, 4 * kMaxParameters + 2> reads_;
  std::array<const Tensor*, 3 * kMaxParameters + 1> writes_;
  std::size_t reads_used_ = 0;
  std::size_t writes_used_ = 0;
};

/// Runs `launch(list, announcement)` over groups of parameters; also once if there are none, since
/// the step still counts.
template <typename Launch>
void for_each_group(const std::vector<ParameterSlot>& slots, const Tensor& hyper,
                    const Tensor& step, const Launch& launch) {
  std::size_t begin = 0;
  do {
    const std::size_t end = std::min(slots.size(), begin + kMaxParameters);
    ParameterList list{};
    Announcement announcement;
    for (std::size_t i = begin; i < end; ++i) {
      const ParameterSlot& slot = slots[i];
      if (slot.parameter.numel() == 0) continue;
      list.entries[list.count++] = {slot.parameter.raw_data(), slot.grad.raw_data(),
                                    address_or_null(slot.state1), address_or_null(slot.state2),
                                    slot.parameter.numel()};
      for (const Tensor* tensor : {&slot.parameter, &slot.state1, &slot.state2}) {
        announcement.read(*tensor);
        announcement.write(*tensor);
      }
      announcement.read(slot.grad);
    }
    list.advance_step = end == slots.size();
    announcement.read(hyper);
    announcement.read(step);
    if (list.advance_step) announcement.write(step);
    launch(list, announcement);
    begin = end;
  } while (begin < slots.size());
}

}  // namespace

void sgd_step(const std::vector<ParameterSlot>& slots, const Tensor& hyper, const Tensor& step,
              bool nesterov, bool maximize) {
  constexpr const char* kName = "sgd_step";
  for (const ParameterSlot& slot : slots) {
    check_slot(kName, slot, slots.front());
    if (slot.state1.defined()) check_part(kName, "state1", slot.state1, slot.parameter);
  }
  check_scalars(kName, hyper, 3, step, slots);
  const DType dtype = slots.empty() ? DType::float32 : slots.front().parameter.dtype();
  for_each_group(slots, hyper, step, [&](const ParameterList& list, const Announcement& touched) {
    const OpScope scope(kName, touched.reads(), touched.writes());
    dispatch(step.device(), cpu::sgd, gpu::sgd,
             SgdArgs{
                 .list = list,
                 .hyper = hyper.data<double>(),
                 .step = step.data<std::int64_t>(),
                 .nesterov = nesterov,
                 .maximize = maximize,
                 .dtype = dtype,
             });
  });
}

void adam_step(const std::vector<ParameterSlot>& slots, const Tensor& hyper, const Tensor& step,
               bool decoupled, bool maximize) {
  constexpr const char* kName = "adam_step";
  for (const ParameterSlot& slot : slots) {
    check_slot(kName, slot, slots.front());
    check_part(kName, "state1", slot.state1, slot.parameter);
    check_part(kName, "state2", slot.state2, slot.parameter);
  }
  check_scalars(kName, hyper, 5, step, slots);
  const DType dtype = slots.empty() ? DType::float32 : slots.front().parameter.dtype();
  for_each_group(slots, hyper, step, [&](const ParameterList& list, const Announcement& touched) {
    const OpScope scope(kName, touched.reads(), touched.writes());
    dispatch(step.device(), cpu::adam, gpu::adam,
             AdamArgs{
                 .list = list,
                 .hyper = hyper.data<double>(),
                 .step = step.data<std::int64_t>(),
                 .decoupled = decoupled,
                 .maximize = maximize,
                 .dtype = dtype,
             });
  });
}

}  // namespace capstan::ops

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

/// Which states a rule needs; it may have the others.
struct Needs {
  bool state1 = false;
  bool state2 = false;
};

void check_state(const char* name, const char* what, const Tensor& state, bool needed,
                 const Tensor& parameter) {
  if (needed || state.defined()) check_part(name, what, state, parameter);
}

void check_slot(const char* name, const ParameterSlot& slot, const ParameterSlot& first,
                Needs needs) {
  detail::check_floating(name, slot.parameter);
  detail::check_same_device(name, first.parameter, slot.parameter);
  detail::check_same_dtype(name, first.parameter, slot.parameter);
  check_part(name, "parameter", slot.parameter, slot.parameter);
  check_part(name, "grad", slot.grad, slot.parameter);
  check_state(name, "state1", slot.state1, needs.state1, slot.parameter);
  check_state(name, "state2", slot.state2, needs.state2, slot.parameter);
  check_state(name, "state3", slot.state3, false, slot.parameter);
}

void check_scalars(const char* name, const Tensor& hyper, std::int64_t count, const Tensor& step,
                   const std::vector<ParameterSlot>& slots, const Tensor& skip) {
  detail::check_shape(name, "hyper", hyper, {count});
  CAPSTAN_CHECK(hyper.dtype() == DType::float64 && hyper.is_contiguous(), DTypeError, name,
                ": hyper must be dense float64, got ", describe(hyper));
  CAPSTAN_CHECK(step.dtype() == DType::int64 && step.numel() == 1, DTypeError, name,
                ": step must be one int64, got ", describe(step));
  detail::check_same_device(name, hyper, step);
  if (!slots.empty()) detail::check_same_device(name, slots.front().parameter, step);
  if (!skip.defined()) return;
  CAPSTAN_CHECK(skip.dtype() == DType::float32 && skip.numel() == 1, DTypeError, name,
                ": skip must be one float32, got ", describe(skip));
  detail::check_same_device(name, skip, step);
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
  std::array<const Tensor*, 5 * kMaxParameters + 3> reads_;
  std::array<const Tensor*, 4 * kMaxParameters + 1> writes_;
  std::size_t reads_used_ = 0;
  std::size_t writes_used_ = 0;
};

/// Runs `launch(list, dtype)` over groups of parameters; also once if there are none and the step
/// counts.
template <typename Launch>
void for_each_group(const char* name, const std::vector<ParameterSlot>& slots, const Tensor& hyper,
                    const Tensor& step, const StepControl& control, const Launch& launch) {
  if (slots.empty() && !control.counts) return;
  const DType dtype = slots.empty() ? DType::float32 : slots.front().parameter.dtype();
  std::size_t begin = 0;
  do {
    const std::size_t end = std::min(slots.size(), begin + kMaxParameters);
    ParameterList list{};
    Announcement announcement;
    for (std::size_t i = begin; i < end; ++i) {
      const ParameterSlot& slot = slots[i];
      if (slot.parameter.numel() == 0) continue;
      list.entries[list.count++] = {slot.parameter.raw_data(),    slot.grad.raw_data(),
                                    address_or_null(slot.state1), address_or_null(slot.state2),
                                    address_or_null(slot.state3), slot.parameter.numel()};
      for (const Tensor* tensor : {&slot.parameter, &slot.state1, &slot.state2, &slot.state3}) {
        announcement.read(*tensor);
        announcement.write(*tensor);
      }
      announcement.read(slot.grad);
    }
    list.skip = static_cast<const float*>(address_or_null(control.skip));
    list.advance_step = control.counts && end == slots.size();
    announcement.read(hyper);
    announcement.read(step);
    announcement.read(control.skip);
    if (list.advance_step) announcement.write(step);
    const OpScope scope(name, announcement.reads(), announcement.writes());
    launch(list, dtype);
    begin = end;
  } while (begin < slots.size());
}

void check(const char* name, const std::vector<ParameterSlot>& slots, Needs needs,
           const Tensor& hyper, std::int64_t count, const Tensor& step,
           const StepControl& control) {
  for (const ParameterSlot& slot : slots) check_slot(name, slot, slots.front(), needs);
  check_scalars(name, hyper, count, step, slots, control.skip);
}

}  // namespace

void sgd_step(const std::vector<ParameterSlot>& slots, const Tensor& hyper, const Tensor& step,
              bool nesterov, bool maximize, const StepControl& control) {
  constexpr const char* kName = "sgd_step";
  check(kName, slots, {}, hyper, 4, step, control);
  for_each_group(kName, slots, hyper, step, control, [&](const ParameterList& list, DType dtype) {
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
               bool decoupled, bool maximize, const StepControl& control) {
  constexpr const char* kName = "adam_step";
  check(kName, slots, {.state1 = true, .state2 = true}, hyper, 5, step, control);
  for (const ParameterSlot& slot : slots) {
    CAPSTAN_CHECK(slot.state3.defined() == slots.front().state3.defined(), StateError,
                  "adam_step: state3 must be there for all parameters or for none");
  }
  for_each_group(kName, slots, hyper, step, control, [&](const ParameterList& list, DType dtype) {
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

void rmsprop_step(const std::vector<ParameterSlot>& slots, const Tensor& hyper, const Tensor& step,
                  bool maximize, const StepControl& control) {
  constexpr const char* kName = "rmsprop_step";
  check(kName, slots, {.state1 = true}, hyper, 5, step, control);
  for_each_group(kName, slots, hyper, step, control, [&](const ParameterList& list, DType dtype) {
    dispatch(step.device(), cpu::rmsprop, gpu::rmsprop,
             RmspropArgs{
                 .list = list,
                 .hyper = hyper.data<double>(),
                 .step = step.data<std::int64_t>(),
                 .maximize = maximize,
                 .dtype = dtype,
             });
  });
}

void adagrad_step(const std::vector<ParameterSlot>& slots, const Tensor& hyper, const Tensor& step,
                  bool maximize, const StepControl& control) {
  constexpr const char* kName = "adagrad_step";
  check(kName, slots, {.state1 = true}, hyper, 4, step, control);
  for_each_group(kName, slots, hyper, step, control, [&](const ParameterList& list, DType dtype) {
    dispatch(step.device(), cpu::adagrad, gpu::adagrad,
             AdagradArgs{
                 .list = list,
                 .hyper = hyper.data<double>(),
                 .step = step.data<std::int64_t>(),
                 .maximize = maximize,
                 .dtype = dtype,
             });
  });
}

void lion_step(const std::vector<ParameterSlot>& slots, const Tensor& hyper, const Tensor& step,
               bool maximize, const StepControl& control) {
  constexpr const char* kName = "lion_step";
  check(kName, slots, {.state1 = true}, hyper, 4, step, control);
  for_each_group(kName, slots, hyper, step, control, [&](const ParameterList& list, DType dtype) {
    dispatch(step.device(), cpu::lion, gpu::lion,
             LionArgs{
                 .list = list,
                 .hyper = hyper.data<double>(),
                 .step = step.data<std::int64_t>(),
                 .maximize = maximize,
                 .dtype = dtype,
             });
  });
}

}  // namespace capstan::ops

#include "nn/optim/ema.h"

#include <algorithm>

#include "autograd/grad_mode.h"
#include "framework/runtime/forbidden.h"
#include "framework/tensor/write_journal.h"
#include "ops/creation.h"
#include "ops/elementwise.h"

namespace capstan::nn {
namespace {

void check_decay(double value) {
  CAPSTAN_CHECK(value >= 0.0 && value <= 1.0, ValueError, "EMA: decay must be in [0, 1], got ",
                value);
}

DType wide(DType dtype) { return dtype == DType::float64 ? dtype : DType::float32; }

bool matches(const Tensor& weight, const Tensor& average) {
  return weight.dtype() == average.dtype() && weight.device() == average.device();
}

}  // namespace

EMA::EMA(std::vector<Tensor> parameters, double decay, Where where)
    : parameters_(std::move(parameters)), decay_(decay) {
  const CallSite site(where);
  check_decay(decay);
  CAPSTAN_CHECK(!parameters_.empty(), ValueError,
                "EMA: there are no parameters to average; pass model.parameters()");
  const NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i];
    CAPSTAN_CHECK(is_floating(parameter.dtype()), DTypeError, "EMA: parameter ", i, " (",
                  describe(parameter), ") is not floating");
    averages_.push_back(ops::clone(ops::cast(parameter, wide(parameter.dtype()))));
    const Tensor& average = averages_.back();
    const auto same = [&average](const Tensor& weight) { return matches(weight, average); };
    if (std::none_of(weights_.begin(), weights_.end(), same)) {
      weights_.push_back(
          full({}, 1.0 - decay, {.dtype = average.dtype(), .device = average.device()}));
    }
  }
}

const Tensor& EMA::weight_for(const Tensor& average) const {
  return *std::find_if(weights_.begin(), weights_.end(),
                       [&average](const Tensor& weight) { return matches(weight, average); });
}

void EMA::update(Where where) {
  const CallSite site(where);
  const NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& average = averages_[i];
    const Tensor change =
        ops::binary(BinaryOp::sub, ops::cast(parameters_[i], average.dtype()), average);
    ops::binary_out(BinaryOp::mul, change, weight_for(average), change);
    ops::binary_out(BinaryOp::add, average, change, average);
  }
}

void EMA::copy_to_parameters(Where where) const {
  const CallSite site(where);
  const NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) ops::copy(parameters_[i], averages_[i]);
}

void EMA::set_decay(double value, Where where) {
  const CallSite site(where);
  check_decay(value);
  for (const Tensor& weight : weights_)
    refuse_while_capturing(weight.device(), Forbidden::set_decay);
  write_decay(value);
}

void EMA::write_decay(double value) {
  if (WriteJournal* journal = WriteJournal::current()) {
    journal->keep_host(&decay_, [this, decay = decay_] { decay_ = decay; });
  }
  for (const Tensor& weight : weights_) ops::fill(weight, 1.0 - value);
  decay_ = value;
}

StateDict EMA::state_dict() const {
  StateDict state{{"decay", Tensor::from_vector<double>({}, {decay_})}};
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    state.emplace_back(std::to_string(i), averages_[i]);
  }
  return state;
}

void EMA::load_state_dict(const StateDict& state, Where where) {
  const CallSite site(where);
  for (const Tensor& weight : weights_) {
    refuse_while_capturing(weight.device(), Forbidden::load_state_dict);
  }
  const StateDict targets = state_dict();
  copy_state("load_state_dict", targets, state, /*strict=*/true);
  write_decay(targets[0].second.item<double>());
}

}  // namespace capstan::nn

#include "nn/optim/scheduler.h"

#include <cmath>

#include "framework/tensor/write_journal.h"

namespace capstan::nn {
namespace {

std::vector<double> rates_of(const Optimizer& optimizer) {
  std::vector<double> rates;
  for (std::size_t i = 0; i < optimizer.group_count(); ++i) {
    rates.push_back(optimizer.learning_rate(i));
  }
  return rates;
}

Tensor as_tensor(const std::vector<double>& values) {
  return Tensor::from_vector({static_cast<std::int64_t>(values.size())}, values);
}

}  // namespace

Scheduler::Scheduler(Optimizer& optimizer, Schedule schedule, Where where)
    : optimizer_(optimizer), schedule_(std::move(schedule)), initial_(rates_of(optimizer)) {
  const CallSite site(where);
  move_to(0);
}

void Scheduler::step(Where where) {
  const CallSite site(where);
  move_to(steps_ + 1);
}

void Scheduler::move_to(std::int64_t step) {
  refuse_while_capturing(optimizer_.step_tensor().device(), Forbidden::scheduler_step);
  CAPSTAN_CHECK(optimizer_.group_count() == initial_.size(), StateError,
                "scheduler: the optimiser has ", optimizer_.group_count(),
                " groups of parameters, but the scheduler was made for ", initial_.size(),
                "; make it after adding them");
  std::vector<double> rates;
  for (const double initial : initial_) {
    rates.push_back(schedule_(initial, step));
    CAPSTAN_CHECK(rates.back() >= 0.0 && std::isfinite(rates.back()), ValueError,
                  "scheduler: the schedule gives ", rates.back(), " for step ", step,
                  "; a learning rate must be at least 0");
  }
  if (WriteJournal* journal = WriteJournal::current()) {
    journal->keep_host(&steps_, [this, steps = steps_, before = rates_] {
      steps_ = steps;
      rates_ = before;
    });
  }
  for (std::size_t i = 0; i < rates.size(); ++i) optimizer_.set_learning_rate(i, rates[i]);
  rates_ = std::move(rates);
  steps_ = step;
}

StateDict Scheduler::state_dict() const {
  return {{"step", Tensor::from_vector<std::int64_t>({}, {steps_})},
          {"initial_lr", as_tensor(initial_)},
          {"last_lr", as_tensor(rates_)}};
}

void Scheduler::load_state_dict(const StateDict& state, Where where) {
  const CallSite site(where);
  refuse_while_capturing(optimizer_.step_tensor().device(), Forbidden::load_state_dict);
  const StateDict loaded = state_dict();
  copy_state("load_state_dict", loaded, state, /*strict=*/true);
  const auto rates = loaded[2].second.to_vector<double>();
  for (std::size_t i = 0; i < rates.size(); ++i) optimizer_.set_learning_rate(i, rates[i]);
  steps_ = loaded[0].second.item<std::int64_t>();
  initial_ = loaded[1].second.to_vector<double>();
  rates_ = rates;
}

}  // namespace capstan::nn

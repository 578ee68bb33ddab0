#include "nn/optim/grad_scaler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/arithmetic.h"
#include "autograd/grad_mode.h"
#include "autograd/layout.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/write_journal.h"
#include "ops/creation.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

namespace capstan::nn {

GradScaler::GradScaler(Device device, GradScalerOptions options, Where where) : options_(options) {
  const CallSite site(where);
  CAPSTAN_CHECK(options.init_scale > 0.0 && std::isfinite(options.init_scale), ValueError,
                "GradScaler: init_scale must be positive, got ", options.init_scale);
  CAPSTAN_CHECK(options.growth_factor >= 1.0 && std::isfinite(options.growth_factor), ValueError,
                "GradScaler: growth_factor must be at least 1, got ", options.growth_factor);
  CAPSTAN_CHECK(options.backoff_factor > 0.0 && options.backoff_factor < 1.0, ValueError,
                "GradScaler: backoff_factor must be in (0, 1), got ", options.backoff_factor);
  CAPSTAN_CHECK(options.growth_interval >= 1 &&
                    options.growth_interval < std::numeric_limits<std::int32_t>::max(),
                ValueError, "GradScaler: growth_interval must be at least 1 and an int32, got ",
                options.growth_interval);
  scale_ = full({}, options.init_scale, {.device = device});
  tracker_ = zeros({}, {.dtype = DType::int32, .device = device});
}

Tensor GradScaler::scale(const Tensor& loss, Where where) const {
  return options_.enabled ? loss * Operand(scale_, where) : loss;
}

GradScaler::Known& GradScaler::known(Optimizer& optimizer) {
  CAPSTAN_CHECK(optimizer.found_inf().device() == scale_.device(), DeviceError,
                "GradScaler: the optimiser is on ", optimizer.found_inf().device(),
                " but the scale on ", scale_.device(), "; make one scaler for each device");
  for (Known& entry : known_) {
    if (entry.found_inf.is_same(optimizer.found_inf())) return entry;
  }
  return known_.emplace_back(Known{optimizer.found_inf(), Stage::ready});
}

void GradScaler::keep_stages() {
  if (WriteJournal* journal = WriteJournal::current()) {
    journal->keep_host(&known_, [this, before = known_] { known_ = before; });
  }
}

void GradScaler::unscale_(Optimizer& optimizer, Where where) {
  const CallSite site(where);
  if (!options_.enabled) return;
  keep_stages();
  Known& entry = known(optimizer);
  CAPSTAN_CHECK(entry.stage == Stage::ready, StateError, "GradScaler: unscale_ was called ",
                entry.stage == Stage::stepped ? "after step" : "twice",
                " for one optimiser; call update() once per step");
  unscale(entry, optimizer);
  entry.stage = Stage::unscaled;
}

void GradScaler::unscale(Known& entry, const Optimizer& optimizer) const {
  const NoGradGuard no_grad;
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : optimizer.parameters()) {
    const Tensor grad = parameter.grad();
    if (!grad.defined() || grad.numel() == 0) continue;
    CAPSTAN_CHECK(grad.dtype() != DType::float16, DTypeError, "GradScaler: a gradient (",
                  describe(grad),
                  ") is float16, which cannot hold it unscaled; keep the parameters in float32 and "
                  "use Autocast");
    gradients.push_back(grad);
  }
  if (gradients.empty()) return;
  // Zero times the extremes of each: 0, or NaN where one of its elements is inf or NaN.
  std::vector<Tensor> extremes;
  const Tensor inverse = ops::unary(UnaryOp::reciprocal, ops::cast(scale_, DType::float64));
  for (const Tensor& grad : gradients) {
    for (const ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
      extremes.push_back(ops::cast(ops::reduce(op, grad), DType::float32).unsqueeze(0));
    }
    ops::binary_out(BinaryOp::mul, grad, ops::cast(inverse, grad.dtype()), grad);
  }
  const Tensor sum = ops::reduce(ReduceOp::sum, ops::binary(BinaryOp::mul, cat(extremes), 0.0));
  const Tensor bad = ops::cast(ops::binary(BinaryOp::ne, sum, 0.0), DType::float32);
  ops::binary_out(BinaryOp::maximum, entry.found_inf, bad, entry.found_inf);
}

void GradScaler::step(Optimizer& optimizer, Where where) {
  const CallSite site(where);
  if (!options_.enabled) return optimizer.step(where);
  keep_stages();
  Known& entry = known(optimizer);
  CAPSTAN_CHECK(entry.stage != Stage::stepped, StateError,
                "GradScaler: step was called twice for one optimiser; call update() in between");
  if (entry.stage == Stage::ready) {
    unscale(entry, optimizer);
    entry.stage = Stage::unscaled;
  }
  optimizer.step_unless(entry.found_inf, where);
  entry.stage = Stage::stepped;
}

void GradScaler::update(Where where) {
  const CallSite site(where);
  if (!options_.enabled) return;
  CAPSTAN_CHECK(!known_.empty(), StateError,
                "GradScaler: update needs a step (or unscale_) before it, which looks for inf");
  const NoGradGuard no_grad;
  keep_stages();
  std::vector<Tensor> findings;
  for (const Known& entry : known_) findings.push_back(entry.found_inf.unsqueeze(0));
  const Tensor bad = ops::binary(BinaryOp::ne, ops::reduce(ReduceOp::max, cat(findings)), 0.0);
  const Tensor good_steps = tracker_ + 1;
  const Tensor is_due = ge(good_steps, options_.growth_interval);
  const Tensor grown = scale_ * options_.growth_factor;
  const Tensor fits = le(grown, std::numeric_limits<float>::max());
  const Tensor kept = ops::where(logical_and(is_due, fits), grown, scale_);
  const Tensor next = ops::where(bad, scale_ * options_.backoff_factor, kept);
  const Tensor next_tracker = ops::where(logical_or(bad, is_due), zeros_like(tracker_), good_steps);
  ops::copy(scale_, next);
  ops::copy(tracker_, next_tracker);
  for (Known& entry : known_) {
    ops::fill(entry.found_inf, 0.0);
    entry.stage = Stage::ready;
  }
}

void GradScaler::set_scale(double value, Where where) {
  const CallSite site(where);
  CAPSTAN_CHECK(value > 0.0 && std::isfinite(value), ValueError,
                "GradScaler: the scale must be positive, got ", value);
  refuse_while_capturing(scale_.device(), Forbidden::set_scale);
  ops::fill(scale_, value);
}

StateDict GradScaler::state_dict() const {
  return {{"scale", scale_}, {"growth_tracker", tracker_}};
}

void GradScaler::load_state_dict(const StateDict& state, Where where) {
  const CallSite site(where);
  copy_state("load_state_dict", state_dict(), state, /*strict=*/true);
}

}  // namespace capstan::nn

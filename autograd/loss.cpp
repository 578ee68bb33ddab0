#include "autograd/loss.h"

#include <algorithm>

#include "autograd/arithmetic.h"
#include "autograd/autocast_policy.h"
#include "autograd/layout.h"
#include "autograd/loss_checks.h"
#include "autograd/math.h"
#include "autograd/node.h"
#include "autograd/reduce.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

namespace capstan {

using autograd::autocast;
using autograd::autocasts;
using autograd::BackwardContext;
using autograd::CastTo;
using autograd::check_same_shape;
using autograd::needs_grad;
using autograd::record;
using autograd::requires_grad;
using autograd::Saved;

namespace {

// Without gradients: they are part of the gradient of the loss.
[[nodiscard]] Tensor reduced(const Tensor& losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::mean: return ops::reduce(ReduceOp::mean, losses);
    case Reduction::sum: return ops::reduce(ReduceOp::sum, losses);
    case Reduction::none: break;
  }
  return losses;
}

// d(loss) / d(one term of it).
[[nodiscard]] double weight_of_term(Reduction reduction, std::int64_t terms) {
  const auto count = static_cast<double>(std::max<std::int64_t>(terms, 1));
  return reduction == Reduction::mean ? 1.0 / count : 1.0;
}

}  // namespace

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& labels, LossOptions options,
                Where where) {
  const CallSite site(where);
  CAPSTAN_CHECK(
      log_probabilities.rank() == 2 && labels.rank() == 1 &&
          labels.size(0) == log_probabilities.size(0),
      ShapeError, "nll_loss: needs log_probabilities [rows, classes] and labels [rows], got ",
      log_probabilities.shape(), " and ", labels.shape(), "; flatten leading axes with reshape");
  if (autocasts(CastTo::float32, log_probabilities)) [[unlikely]] {
    return nll_loss(autocast(CastTo::float32, log_probabilities), labels, options, where);
  }
  const Tensor picked = gather(log_probabilities, 1, labels.unsqueeze(1)).squeeze(1);
  switch (options.reduction) {
    case Reduction::mean: return neg(mean(picked));
    case Reduction::sum: return neg(sum(picked));
    case Reduction::none: break;
  }
  return neg(picked);
}

Tensor mse_loss(const Tensor& x, const Tensor& target, LossOptions options, Where where) {
  const CallSite site(where);
  check_same_shape("mse_loss", x, target);
  if (autocasts(CastTo::float32, x, target)) [[unlikely]] {
    return mse_loss(autocast(CastTo::float32, x), autocast(CastTo::float32, target), options,
                    where);
  }
  const Tensor difference = x - target;
  Tensor loss = reduced(ops::unary(UnaryOp::square, difference), options.reduction);
  if (needs_grad(difference)) {
    record(loss, "mse_loss", {&difference},
           [difference = Saved(difference),
            scale = 2.0 * weight_of_term(options.reduction, x.numel())](BackwardContext& context) {
             context.set(0, difference.get(context) * (context.grad() * scale));
           });
  }
  return loss;
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, LossOptions options,
                                        Where where) {
  const CallSite site(where);
  check_same_shape("binary_cross_entropy_with_logits", x, target);
  if (autocasts(CastTo::float32, x, target)) [[unlikely]] {
    return binary_cross_entropy_with_logits(autocast(CastTo::float32, x),
                                            autocast(CastTo::float32, target), options, where);
  }
  const auto terms = [&] {
    const NoGradGuard no_grad;
    return relu(x) - x * target + log1p(exp(neg(abs(x))));
  };
  Tensor loss = reduced(terms(), options.reduction);
  if (needs_grad(x, target)) {
    record(loss, "binary_cross_entropy_with_logits", {&x, &target},
           [x = Saved(x), target = requires_grad(x) ? Saved(target) : Saved(),
            scale = weight_of_term(options.reduction, x.numel())](BackwardContext& context) {
             const Tensor logits = x.get(context);
             const Tensor g = context.grad() * scale;
             if (context.needs(0)) context.set(0, (sigmoid(logits) - target.get(context)) * g);
             if (context.needs(1)) context.set(1, neg(logits * g));
           });
  }
  return loss;
}

}  // namespace capstan

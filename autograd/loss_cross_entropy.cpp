// Cross-entropy of class labels: fused where it is plain, else composed of differentiable
// functions.

#include <algorithm>

#include "autograd/arithmetic.h"
#include "autograd/autocast_policy.h"
#include "autograd/layout.h"
#include "autograd/loss.h"
#include "autograd/node.h"
#include "autograd/reduce.h"
#include "framework/tensor/factory.h"
#include "ops/creation.h"

namespace capstan {

using autograd::autocast;
using autograd::autocasts;
using autograd::BackwardContext;
using autograd::CastTo;
using autograd::needs_grad;
using autograd::record;
using autograd::Saved;

namespace {

// The same as the fused kernel, composed of functions with derivatives.
[[nodiscard]] Tensor cross_entropy_slope(const Tensor& g, const Tensor& logits,
                                         const Tensor& labels, Reduction reduction) {
  const auto rows = static_cast<double>(std::max<std::int64_t>(logits.size(0), 1));
  const Tensor slope = softmax(logits, 1) - one_hot(labels, logits.size(1), logits.dtype());
  const Tensor scaled = g * (reduction == Reduction::mean ? 1.0 / rows : 1.0);
  return slope * (reduction == Reduction::none ? scaled.unsqueeze(1) : scaled);
}

[[nodiscard]] Tensor fused(const Tensor& logits, const Tensor& labels, Reduction reduction) {
  auto [loss, logsumexp] = ops::cross_entropy(logits, labels, reduction);
  if (needs_grad(logits)) {
    record(loss, "cross_entropy", {&logits},
           [logits = Saved(logits), labels = Saved(labels), logsumexp = Saved(logsumexp),
            reduction](BackwardContext& context) {
             const Tensor& g = context.grad();
             const Tensor x = logits.get(context);
             const Tensor classes = labels.get(context);
             context.set(0, grad_enabled() ? cross_entropy_slope(g, x, classes, reduction)
                                           : ops::cross_entropy_backward(
                                                 g, x, classes, logsumexp.get(context), reduction));
           });
  }
  return loss;
}

[[nodiscard]] Tensor composed(const Tensor& logits, const Tensor& labels,
                              const CrossEntropyOptions& options) {
  const double smoothing = options.label_smoothing;
  const Tensor log_p = log_softmax(logits, 1);
  Tensor counted;  // rows that are; undefined: all
  Tensor classes = labels;
  if (options.ignore_index) {
    counted = ne(labels, *options.ignore_index);
    classes = where(counted, labels, zeros_like(labels));
  }
  Tensor weights;  // of the rows
  if (options.weight.defined()) weights = index_select(options.weight.detach(), 0, classes);
  Tensor losses = neg(gather(log_p, 1, classes.unsqueeze(1)).squeeze(1));
  if (weights.defined()) losses = losses * weights;
  if (smoothing > 0.0) {
    const Tensor weighted = weights.defined() ? log_p * options.weight.detach() : log_p;
    const auto count = static_cast<double>(logits.size(1));
    losses = losses * (1.0 - smoothing) - sum(weighted, {1}) * (smoothing / count);
  }
  const Tensor none = zeros_like(losses);
  if (counted.defined()) losses = where(counted, losses, none);
  if (options.reduction == Reduction::none) return losses;
  if (options.reduction == Reduction::sum) return sum(losses);
  Tensor shares = weights.defined() ? weights : ones_like(losses);
  if (counted.defined()) shares = where(counted, shares, none);
  return sum(losses) / sum(shares);
}

void check_options(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options) {
  constexpr const char* kName = "cross_entropy";
  CAPSTAN_CHECK(options.label_smoothing >= 0.0 && options.label_smoothing <= 1.0, ValueError, kName,
                ": label_smoothing must be in [0, 1], got ", options.label_smoothing);
  CAPSTAN_CHECK(logits.rank() == 2 && labels.rank() == 1 && labels.size(0) == logits.size(0),
                ShapeError, kName, ": needs logits [rows, classes] and labels [rows], got ",
                logits.shape(), " and ", labels.shape(), "; flatten leading axes with reshape");
  CAPSTAN_CHECK(labels.dtype() == DType::int64 || labels.dtype() == DType::int32, DTypeError, kName,
                ": labels must be int64 or int32, got ", labels.dtype());
  if (!options.weight.defined()) return;
  CAPSTAN_CHECK(options.weight.rank() == 1 && options.weight.size(0) == logits.size(1), ShapeError,
                kName, ": weight must be [classes] for logits ", logits.shape(), ", got ",
                options.weight.shape());
  CAPSTAN_CHECK(options.weight.dtype() == logits.dtype(), DTypeError, kName, ": weight is ",
                options.weight.dtype(), " but logits are ", logits.dtype());
  CAPSTAN_CHECK(options.weight.device() == logits.device(), DeviceError, kName, ": weight is on ",
                options.weight.device(), " but logits on ", logits.device());
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options,
                     Where where) {
  const CallSite site(where);
  if (autocasts(CastTo::float32, logits, options.weight)) [[unlikely]] {
    CrossEntropyOptions wide = options;
    if (wide.weight.defined()) wide.weight = autocast(CastTo::float32, wide.weight);
    return cross_entropy(autocast(CastTo::float32, logits), labels, wide, where);
  }
  if (options.label_smoothing == 0.0 && !options.weight.defined() && !options.ignore_index) {
    return fused(logits, labels, options.reduction);
  }
  check_options(logits, labels, options);
  return composed(logits, labels, options);
}

}  // namespace capstan

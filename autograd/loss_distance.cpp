// Losses composed of differentiable functions: their gradients, of any order, follow.

#include "autograd/arithmetic.h"
#include "autograd/autocast_policy.h"
#include "autograd/loss.h"
#include "autograd/loss_checks.h"
#include "autograd/math.h"
#include "autograd/reduce.h"
#include "framework/tensor/factory.h"
#include "ops/creation.h"

namespace capstan {

using autograd::autocast;
using autograd::autocasts;
using autograd::CastTo;
using autograd::check_same_shape;

namespace {

[[nodiscard]] Tensor reduced(const Tensor& losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::mean: return mean(losses);
    case Reduction::sum: return sum(losses);
    case Reduction::none: break;
  }
  return losses;
}

/// `bend` is where the parabola becomes a line of slope `slope`.
[[nodiscard]] Tensor bent(const Tensor& x, const Tensor& target, double bend, double slope) {
  const Tensor distance = abs(x - target);
  const Tensor inner = minimum(distance, bend);
  return inner * (distance - inner * 0.5) * (slope / bend);
}

[[nodiscard]] Tensor distance(const Tensor& a, const Tensor& b,
                              const TripletMarginOptions& options) {
  const Tensor difference = a - b + options.eps;
  if (options.p == 2.0) return sqrt(sum(square(difference), {-1}));
  const Tensor size = abs(difference);
  if (options.p == 1.0) return sum(size, {-1});
  return pow(sum(pow(size, options.p), {-1}), 1.0 / options.p);
}

}  // namespace

Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, SmoothL1Options options, Where where) {
  const CallSite site(where);
  constexpr const char* kName = "smooth_l1_loss";
  check_same_shape(kName, x, target);
  CAPSTAN_CHECK(options.beta >= 0.0, ValueError, kName, ": beta must be at least 0, got ",
                options.beta);
  if (autocasts(CastTo::float32, x, target)) [[unlikely]] {
    return smooth_l1_loss(autocast(CastTo::float32, x), autocast(CastTo::float32, target), options,
                          where);
  }
  if (options.beta == 0.0) return reduced(abs(x - target), options.reduction);
  return reduced(bent(x, target, options.beta, 1.0), options.reduction);
}

Tensor huber_loss(const Tensor& x, const Tensor& target, HuberOptions options, Where where) {
  const CallSite site(where);
  constexpr const char* kName = "huber_loss";
  check_same_shape(kName, x, target);
  CAPSTAN_CHECK(options.delta > 0.0, ValueError, kName, ": delta must be positive, got ",
                options.delta);
  if (autocasts(CastTo::float32, x, target)) [[unlikely]] {
    return huber_loss(autocast(CastTo::float32, x), autocast(CastTo::float32, target), options,
                      where);
  }
  return reduced(bent(x, target, options.delta, options.delta), options.reduction);
}

Tensor kl_div(const Tensor& x, const Tensor& target, KlDivOptions options, Where where) {
  const CallSite site(where);
  constexpr const char* kName = "kl_div";
  check_same_shape(kName, x, target);
  CAPSTAN_CHECK(!options.batchmean || x.rank() > 0, ShapeError, kName,
                ": batchmean needs a batch axis, got a scalar");
  if (autocasts(CastTo::float32, x, target)) [[unlikely]] {
    return kl_div(autocast(CastTo::float32, x), autocast(CastTo::float32, target), options, where);
  }
  Tensor losses;
  if (options.log_target) {
    losses = exp(target) * (target - x);
  } else {
    // t log t is 0 at 0.
    const Tensor present = capstan::where(ne(target, 0.0), target, ones_like(target));
    losses = target * log(present) - target * x;
  }
  if (options.batchmean) return sum(losses) * (1.0 / static_cast<double>(x.size(0)));
  return reduced(losses, options.reduction);
}

Tensor cosine_embedding_loss(const Tensor& x1, const Tensor& x2, const Tensor& y,
                             CosineEmbeddingOptions options, Where where) {
  const CallSite site(where);
  constexpr const char* kName = "cosine_embedding_loss";
  CAPSTAN_CHECK(
      x1.rank() == 2 && x1.shape() == x2.shape() && y.rank() == 1 && y.size(0) == x1.size(0),
      ShapeError, kName, ": needs x1 and x2 [rows, features] and y [rows], got ", x1.shape(), ", ",
      x2.shape(), " and ", y.shape());
  if (autocasts(CastTo::float32, x1, x2)) [[unlikely]] {
    return cosine_embedding_loss(autocast(CastTo::float32, x1), autocast(CastTo::float32, x2), y,
                                 options, where);
  }
  constexpr double kEps = 1e-12;
  const Tensor lengths = (sum(square(x1), {1}) + kEps) * (sum(square(x2), {1}) + kEps);
  const Tensor cosine = sum(x1 * x2, {1}) * rsqrt(lengths);
  const Tensor zero = zeros_like(cosine);
  const Tensor alike = capstan::where(eq(y, 1), 1.0 - cosine, zero);
  const Tensor apart = capstan::where(eq(y, -1), relu(cosine - options.margin), zero);
  return reduced(alike + apart, options.reduction);
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           TripletMarginOptions options, Where where) {
  const CallSite site(where);
  constexpr const char* kName = "triplet_margin_loss";
  CAPSTAN_CHECK(anchor.rank() >= 1 && anchor.shape() == positive.shape() &&
                    anchor.shape() == negative.shape(),
                ShapeError, kName,
                ": anchor, positive and negative must have one shape [..., features], got ",
                anchor.shape(), ", ", positive.shape(), " and ", negative.shape());
  CAPSTAN_CHECK(options.margin > 0.0 && options.p > 0.0, ValueError, kName,
                ": margin and p must be positive, got ", options.margin, " and ", options.p);
  if (autocasts(CastTo::float32, anchor, positive, negative)) [[unlikely]] {
    return triplet_margin_loss(autocast(CastTo::float32, anchor),
                               autocast(CastTo::float32, positive),
                               autocast(CastTo::float32, negative), options, where);
  }
  const Tensor near = distance(anchor, positive, options);
  Tensor far = distance(anchor, negative, options);
  if (options.swap) far = minimum(far, distance(positive, negative, options));
  return reduced(relu(near - far + options.margin), options.reduction);
}

}  // namespace capstan

#pragma once

#include "autograd/loss.h"

// Losses as objects, for those who keep them beside their modules; each calls the function of
// autograd/loss.h with its options.
namespace capstan::nn {

struct CrossEntropyLoss {
  CrossEntropyOptions options{};
  [[nodiscard]] Tensor operator()(const Tensor& logits, const Tensor& labels,
                                  Where where = Where::current()) const {
    return cross_entropy(logits, labels, options, where);
  }
};
struct NLLLoss {
  LossOptions options{};
  [[nodiscard]] Tensor operator()(const Tensor& log_probabilities, const Tensor& labels,
                                  Where where = Where::current()) const {
    return nll_loss(log_probabilities, labels, options, where);
  }
};
struct MSELoss {
  LossOptions options{};
  [[nodiscard]] Tensor operator()(const Tensor& x, const Tensor& target,
                                  Where where = Where::current()) const {
    return mse_loss(x, target, options, where);
  }
};
struct BCEWithLogitsLoss {
  LossOptions options{};
  [[nodiscard]] Tensor operator()(const Tensor& x, const Tensor& target,
                                  Where where = Where::current()) const {
    return binary_cross_entropy_with_logits(x, target, options, where);
  }
};
struct SmoothL1Loss {
  SmoothL1Options options{};
  [[nodiscard]] Tensor operator()(const Tensor& x, const Tensor& target,
                                  Where where = Where::current()) const {
    return smooth_l1_loss(x, target, options, where);
  }
};
struct HuberLoss {
  HuberOptions options{};
  [[nodiscard]] Tensor operator()(const Tensor& x, const Tensor& target,
                                  Where where = Where::current()) const {
    return huber_loss(x, target, options, where);
  }
};
struct KLDivLoss {
  KlDivOptions options{};
  [[nodiscard]] Tensor operator()(const Tensor& x, const Tensor& target,
                                  Where where = Where::current()) const {
    return kl_div(x, target, options, where);
  }
};
struct CosineEmbeddingLoss {
  CosineEmbeddingOptions options{};
  [[nodiscard]] Tensor operator()(const Tensor& x1, const Tensor& x2, const Tensor& y,
                                  Where where = Where::current()) const {
    return cosine_embedding_loss(x1, x2, y, options, where);
  }
};
struct TripletMarginLoss {
  TripletMarginOptions options{};
  [[nodiscard]] Tensor operator()(const Tensor& anchor, const Tensor& positive,
                                  const Tensor& negative, Where where = Where::current()) const {
    return triplet_margin_loss(anchor, positive, negative, options, where);
  }
};

}  // namespace capstan::nn

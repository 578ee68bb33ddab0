#pragma once

#include "autograd/loss.h"

// Losses as objects, for those who keep them beside their modules; each calls the function of
// autograd/loss.h with its options.
namespace capstan::nn {

struct CrossEntropyLoss {
  LossOptions options{};
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

}  // namespace capstan::nn

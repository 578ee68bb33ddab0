#pragma once

#include <optional>

#include "framework/tensor/tensor.h"
#include "ops/softmax.h"

namespace capstan {

using ops::Reduction;

/// exp(x) / sum exp(x) along `axis`. @throws as ops/softmax.h.
[[nodiscard]] Tensor softmax(const Tensor& x, int axis = -1, Where where = Where::current());
[[nodiscard]] Tensor log_softmax(const Tensor& x, int axis = -1, Where where = Where::current());

struct LossOptions {
  Reduction reduction = Reduction::mean;
};

struct CrossEntropyOptions {
  Reduction reduction = Reduction::mean;
  /// Moves that part of the target from the label to all classes evenly; in [0, 1].
  double label_smoothing = 0.0;
  /// [classes] of the logits' dtype, or undefined: the weight of each row is that of its label, and
  /// the mean is a weighted one. Not differentiated.
  Tensor weight{};
  /// Rows with this label count for nothing.
  std::optional<std::int64_t> ignore_index{};
};

/// log_softmax and nll_loss of logits [rows, classes] and labels [rows] (int64 or int32), fused
/// unless there is smoothing, weight or ignore_index. @throws ShapeError, DTypeError, DeviceError,
///   ValueError. A label out of range raises IndexError: on the CPU here, on the GPU where the host
///   next waits.
[[nodiscard]] Tensor cross_entropy(const Tensor& logits, const Tensor& labels,
                                   const CrossEntropyOptions& options = {},
                                   Where where = Where::current());
/// -log_probabilities[r, label[r]], reduced.
[[nodiscard]] Tensor nll_loss(const Tensor& log_probabilities, const Tensor& labels,
                              LossOptions options = {}, Where where = Where::current());
/// (x - target)^2, reduced over all elements; the shapes must be equal.
[[nodiscard]] Tensor mse_loss(const Tensor& x, const Tensor& target, LossOptions options = {},
                              Where where = Where::current());
/// max(x, 0) - x t + log(1 + exp(-|x|)), reduced: cross-entropy of sigmoid(x) with targets in [0,
/// 1].
[[nodiscard]] Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                                      LossOptions options = {},
                                                      Where where = Where::current());

struct SmoothL1Options {
  Reduction reduction = Reduction::mean;
  double beta = 1.0;  ///< at least 0; 0: |x - target|
};
/// With d = |x - target|: d^2 / (2 beta) below beta, d - beta / 2 from there on, reduced; the
/// shapes must be equal (Girshick 2015).
[[nodiscard]] Tensor smooth_l1_loss(const Tensor& x, const Tensor& target,
                                    SmoothL1Options options = {}, Where where = Where::current());
struct HuberOptions {
  Reduction reduction = Reduction::mean;
  double delta = 1.0;  ///< positive
};
/// delta times smooth_l1_loss with beta = delta.
[[nodiscard]] Tensor huber_loss(const Tensor& x, const Tensor& target, HuberOptions options = {},
                                Where where = Where::current());

struct KlDivOptions {
  Reduction reduction = Reduction::mean;
  bool batchmean = false;   ///< instead of `reduction`: the sum divided by x.size(0)
  bool log_target = false;  ///< target, too, is logarithms
};
/// target (log target - x), x the logarithms of probabilities, of one shape with target; 0 where
/// target is 0.
[[nodiscard]] Tensor kl_div(const Tensor& x, const Tensor& target, KlDivOptions options = {},
                            Where where = Where::current());

struct CosineEmbeddingOptions {
  Reduction reduction = Reduction::mean;
  double margin = 0.0;
};
/// For rows of x1 and x2 [rows, features]: 1 - cosine where y [rows] is 1, max(0, cosine - margin)
/// where it is -1, else 0.
[[nodiscard]] Tensor cosine_embedding_loss(const Tensor& x1, const Tensor& x2, const Tensor& y,
                                           CosineEmbeddingOptions options = {},
                                           Where where = Where::current());

struct TripletMarginOptions {
  Reduction reduction = Reduction::mean;
  double margin = 1.0;  ///< positive
  double p = 2.0;       ///< of the p-norm, positive
  double eps = 1e-6;    ///< added to differences
  bool swap = false;    ///< take the distance of positive and negative if that is less
};
/// max(0, |anchor - positive| - |anchor - negative| + margin), norms along the last axis of
/// [..., features] (Balntas et al. 2016).
[[nodiscard]] Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive,
                                         const Tensor& negative, TripletMarginOptions options = {},
                                         Where where = Where::current());

}  // namespace capstan

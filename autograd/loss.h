#pragma once

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

/// Fused log_softmax and nll_loss of logits [rows, classes] and labels [rows] (int64 or int32).
/// A label out of range raises IndexError: on the CPU here, on the GPU where the host next waits.
[[nodiscard]] Tensor cross_entropy(const Tensor& logits, const Tensor& labels,
                                   LossOptions options = {}, Where where = Where::current());
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

}  // namespace capstan

#pragma once

#include "framework/tensor/tensor.h"

namespace capstan::ops {

enum class Reduction : std::uint8_t { mean, sum, none };

/// Softmax along `axis`: exp(x - m) / sum exp(x - m), m the maximum along it; log_softmax is its
/// logarithm, computed without forming it. Floating dtypes.
/// @throws IndexError on a bad axis; ShapeError for a scalar or an empty axis.
[[nodiscard]] Tensor softmax(const Tensor& x, int axis);
[[nodiscard]] Tensor log_softmax(const Tensor& x, int axis);
/// Gradient with respect to x, from the result `y` and its gradient.
[[nodiscard]] Tensor softmax_backward(const Tensor& grad, const Tensor& y, int axis);
[[nodiscard]] Tensor log_softmax_backward(const Tensor& grad, const Tensor& y, int axis);

struct CrossEntropy {
  Tensor loss;       ///< scalar, or [rows] for Reduction::none
  Tensor logsumexp;  ///< [rows], for the backward; float32 if x is float16 or bfloat16
};

/// Cross-entropy of logits x [rows, cols] against class labels [rows] (int64 or int32):
/// loss_r = log sum_c exp(x_rc) - x_r,label(r), reduced over the rows.
/// @throws ShapeError, DTypeError, DeviceError. A label outside of [0, cols) raises IndexError: on
///   the CPU here, on the GPU at the next point where the host waits (its row counts as 0 until
///   then).
[[nodiscard]] CrossEntropy cross_entropy(const Tensor& x, const Tensor& labels,
                                         Reduction reduction);
/// Gradient with respect to x; `grad` has the shape of the loss.
[[nodiscard]] Tensor cross_entropy_backward(const Tensor& grad, const Tensor& x,
                                            const Tensor& labels, const Tensor& logsumexp,
                                            Reduction reduction);

}  // namespace capstan::ops

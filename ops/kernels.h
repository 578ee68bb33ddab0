#pragma once

#include <cstdint>

#include "framework/core/dtype.h"
#include "framework/core/shape.h"
#include "framework/random/philox.h"
#include "framework/runtime/faults.h"

// Every kernel a backend must supply, and the argument struct of each. ops/cpu/, ops/gpu/ and
// ops/no_gpu.cpp each define all of them. The checks in ops/*.cpp have run, so kernels may assume
// valid arguments and numel > 0. Addresses are of the kernel's device; sizes are in elements. f16
// and bf16 are computed in f32 (Compute<T>).
namespace capstan {

class StreamState;

/// Sizes of a loop nest, outermost first, already merged: neighbouring axes that all operands walk
/// through densely are one axis. `contiguous` means that every operand is dense (rank 1, stride 1).
struct LoopNest {
  std::int64_t numel;
  std::int64_t sizes[kMaxRank];
  std::int32_t rank;
  bool contiguous;
};

/// An operand walked by a LoopNest; stride 0 repeats.
struct Walk {
  void* data;
  std::int64_t strides[kMaxRank];
};

enum class UnaryOp : std::uint8_t {
  copy,  // converts between any two dtypes; to bool: nonzero
  // numeric, same dtype out:
  neg,
  abs,
  sign,
  square,
  // floating:
  exp,
  expm1,
  log,
  log1p,
  sqrt,
  rsqrt,
  reciprocal,
  sin,
  cos,
  tanh,
  erf,
  sigmoid,
  relu,
  gelu,
  floor,
  ceil,
  round,
  // any dtype in, bool out:
  logical_not
};

/// y = op(x). gelu is x * Phi(x) with the exact Phi (erf).
struct UnaryArgs {
  LoopNest loop;
  Walk x;
  Walk y;
  UnaryOp op;
  DType x_dtype;
  DType y_dtype;
};

enum class BinaryOp : std::uint8_t {
  add,
  sub,
  mul,
  div,
  pow,
  maximum,
  minimum,  // numeric, same dtype out (div, pow: floating)
  eq,
  ne,
  lt,
  le,
  gt,
  ge,  // any dtype in (one for both), bool out
  logical_and,
  logical_or,  // bool in and out
  // gradients, a = gradient of the result; floating:
  relu_backward,     // b = y: a where b > 0, else 0
  tanh_backward,     // b = y: a * (1 - b^2)
  sigmoid_backward,  // b = y: a * b * (1 - b)
  gelu_backward      // b = x: a * (Phi(b) + b * phi(b))
};

enum class ScalarSide : std::uint8_t { none, left, right };

/// y = op(a, b); one operand may be the number `scalar` instead of a tensor, in the tensor's dtype
/// (f16 and bf16: in f32, but for comparisons).
struct BinaryArgs {
  LoopNest loop;
  Walk a;
  Walk b;
  Walk y;
  double scalar;
  ScalarSide scalar_side;
  BinaryOp op;
  DType dtype;    // of a and b
  DType y_dtype;  // `boolean` for comparisons, else `dtype`
};

/// y = condition ? a : b; condition is bool.
struct WhereArgs {
  LoopNest loop;
  Walk condition;
  Walk a;
  Walk b;
  Walk y;
  DType dtype;
};

struct FillArgs {
  LoopNest loop;
  Walk y;
  DType dtype;
  double value;            // floating dtypes
  std::int64_t int_value;  // the others
};

/// y[i] = start + i * step, y dense.
struct ArangeArgs {
  void* y;
  std::int64_t numel;
  DType dtype;
  double start;
  double step;
};

enum class ReduceOp : std::uint8_t { sum, mean, max, min };

/// y[o] = reduce over inner of x[o, inner]; y is dense in the order of `outer`. NaN wins in max,
/// min. Sums run in a fixed order that depends on sizes alone (bitwise repeatable); f32 sums
/// accumulate with an error no worse than pairwise summation.
struct ReduceArgs {
  const void* x;
  void* y;
  LoopNest outer;
  std::int64_t x_outer_strides[kMaxRank];
  LoopNest inner;  // numel >= 1; inner.contiguous: x is dense along it
  std::int64_t x_inner_strides[kMaxRank];
  ReduceOp op;
  DType dtype;
};

/// y[o] (int64) = index of the largest x[o, i * inner_stride]; the first of equals; NaN wins.
struct ArgmaxArgs {
  const void* x;
  std::int64_t* y;
  LoopNest outer;
  std::int64_t x_outer_strides[kMaxRank];
  std::int64_t count;
  std::int64_t inner_stride;
  DType dtype;
};

/// C[b] = op(A[b]) op(B[b]) + beta * C[b], then + bias on each row if bias is not null; row-major
/// with leading dimensions (elements between rows as stored). op(A) is [m, k], op(B) is [k, n]; a
/// transposed A is stored as [k, m]. Batch stride 0 repeats a matrix. Floating; f16 and bf16 sum in
/// f32 and round once. m, n, k, batch >= 1.
struct MatmulArgs {
  const void* a;
  const void* b;
  void* c;
  const void* bias;  // [n] or null
  std::int64_t m, n, k, batch;
  std::int64_t lda, ldb, ldc;
  std::int64_t a_batch_stride, b_batch_stride, c_batch_stride;
  bool transpose_a, transpose_b;
  double beta;  // 0 or 1; with 0, C is not read
  DType dtype;
};

/// Row-major [rows, cols], dense; `y` may alias `x`. y = softmax(x) or log_softmax(x) by row.
struct SoftmaxArgs {
  const void* x;
  void* y;
  std::int64_t rows, cols;
  bool log;
  DType dtype;
};

/// dx from the result y and its gradient: y * (g - sum(g * y)); log: g - exp(y) * sum(g).
struct SoftmaxBackwardArgs {
  const void* grad;
  const void* y;
  void* dx;
  std::int64_t rows, cols;
  bool log;
  DType dtype;
};

/// logsumexp[r] = log sum_c exp(x[r, c]); loss[r] = logsumexp[r] - x[r, label[r]]. A label outside
/// of [0, cols) is reported as a fault and its row's loss is 0. If `reduced` is not null, it gets
/// scale * sum_r loss[r], summed in a fixed order. f32 or f64.
struct CrossEntropyArgs {
  const void* x;
  const void* labels;
  void* loss;       // [rows]
  void* logsumexp;  // [rows]
  void* reduced;    // scalar or null
  double scale;
  std::int64_t rows, cols;
  DType dtype;
  DType label_dtype;  // int64 or int32
  FaultRecord* faults;
  std::int32_t site;
};

/// dx[r, c] = scale * g * (exp(x[r, c] - logsumexp[r]) - [c == label[r]]), where g is grad[r], or
/// grad[0] for all rows if `grad_is_scalar`. Rows with a bad label get 0 (the forward reported it).
/// f32 or f64.
struct CrossEntropyBackwardArgs {
  const void* grad;
  const void* x;
  const void* labels;
  const void* logsumexp;
  void* dx;
  double scale;
  std::int64_t rows, cols;
  bool grad_is_scalar;
  DType dtype;
  DType label_dtype;
};

/// mask[i] = uniform(i) >= p; y[i] = mask[i] ? x[i] / (1 - p) : 0. All dense. With p = 1 all is 0.
struct DropoutArgs {
  const void* x;
  void* y;
  bool* mask;
  std::int64_t numel;
  double p;
  DType dtype;
  PhiloxArgs random;
};

enum class RandomOp : std::uint8_t {
  uniform,  // a + (b - a) * u, u = to_uniform(word i)
  normal,   // mean a, deviation b; elements 4j..4j+3 use block j: Box-Muller on words (0, 1) gives
            // elements 0, 1 (cos, sin), words (2, 3) give 2, 3; in double, u1 = (word0 + 1) / 2^32,
            // u2 = word1 / 2^32, radius sqrt(-2 log u1), angle 2 pi u2
  bernoulli  // u < a ? 1 : 0
};

/// y dense. uniform and normal: floating; bernoulli: any dtype.
struct RandomArgs {
  void* y;
  std::int64_t numel;
  RandomOp op;
  double a, b;
  DType dtype;
  PhiloxArgs random;
};

/// y[o, j, i] = x[o, index[o, j, i], i]: gather along the middle axis; x dense [outer, axis,
/// inner], index and y dense [outer, count, inner]. With `shared_index`, index is [count] for every
/// o and i (index_select). A bad index is reported as a fault and gives 0.
struct GatherArgs {
  const void* x;
  const void* index;
  void* y;
  std::int64_t outer, axis, inner, count;
  bool shared_index;
  DType dtype;
  DType index_dtype;
  FaultRecord* faults;
  std::int32_t site;
};

/// dx[o, index[o, j, i], i] += g[o, j, i], dx zeroed first; duplicates add in the order of j
/// (bitwise repeatable). Bad indices are skipped. f32 or f64.
struct GatherBackwardArgs {
  const void* grad;
  const void* index;
  void* dx;
  std::int64_t outer, axis, inner, count;
  bool shared_index;
  DType dtype;
  DType index_dtype;
};

/// y[r, c] = (c == label[r]); y dense [rows, classes].
struct OneHotArgs {
  const void* labels;
  void* y;
  std::int64_t rows, classes;
  DType dtype;
  DType label_dtype;
  FaultRecord* faults;
  std::int32_t site;
};

/// One parameter of an optimiser kernel; all dense and of one dtype.
struct ParameterEntry {
  void* parameter;
  const void* grad;
  void* state1;  // what the rule keeps, see its arguments; null if there is none
  void* state2;
  void* state3;
  std::int64_t numel;
};

inline constexpr int kMaxParameters = 64;

/// Up to 64 parameters in one launch (the struct stays under the 4 KiB of kernel arguments). A
/// bigger model takes several launches; only the last has `advance_step`.
struct ParameterList {
  ParameterEntry entries[kMaxParameters];
  const float* skip;  // null, or where a number other than 0 leaves everything as it is
  std::int32_t count;
  bool advance_step;  // add 1 to *step when done, after everyone has read it
};

/// Hyperparameters live in device memory (f64), so that a replay sees every change.
/// d = g + weight_decay * p; first step: v = d, else v = momentum * v + (1 - dampening) * d;
/// p -= lr * (nesterov ? d + momentum * v : v). Without state1, v = d. `*step` counts finished
/// steps.
struct SgdArgs {
  ParameterList list;   // state1: v
  const double* hyper;  // {lr, momentum, weight_decay, dampening}
  std::int64_t* step;
  bool nesterov;
  bool maximize;
  DType dtype;
};

/// t = *step + 1. Adam: g += weight_decay * p; AdamW: p -= lr * weight_decay * p first.
/// m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; with state3 (AMSGrad) w = max(w, v), else w = v;
/// p -= lr / (1 - b1^t) * m / (sqrt(w) / sqrt(1 - b2^t) + eps).
struct AdamArgs {
  ParameterList list;   // state1: m, state2: v, state3: w, for all parameters or none
  const double* hyper;  // {lr, beta1, beta2, eps, weight_decay}
  std::int64_t* step;
  bool decoupled;  // AdamW
  bool maximize;
  DType dtype;
};

/// g += weight_decay * p; s = alpha s + (1 - alpha) g^2; with state2 (centered)
/// a += (1 - alpha) (g - a) and w = s - a^2, else w = s; d = g / (sqrt(w) + eps);
/// with state3 b = momentum b + d, else b = d; p -= lr b.
struct RmspropArgs {
  ParameterList list;   // state1: s, state2: a, state3: b
  const double* hyper;  // {lr, alpha, eps, weight_decay, momentum}
  std::int64_t* step;
  bool maximize;
  DType dtype;
};

/// g += weight_decay * p; s += g^2; p -= lr / (1 + *step * lr_decay) * g / (sqrt(s) + eps).
struct AdagradArgs {
  ParameterList list;   // state1: s
  const double* hyper;  // {lr, lr_decay, weight_decay, eps}
  std::int64_t* step;
  bool maximize;
  DType dtype;
};

/// p -= lr (sign(b1 m + (1 - b1) g) + weight_decay p); m = b2 m + (1 - b2) g.
struct LionArgs {
  ParameterList list;   // state1: m
  const double* hyper;  // {lr, beta1, beta2, weight_decay}
  std::int64_t* step;
  bool maximize;
  DType dtype;
};

namespace cpu {
void unary(const UnaryArgs& args);
void binary(const BinaryArgs& args);
void where(const WhereArgs& args);
void fill(const FillArgs& args);
void arange(const ArangeArgs& args);
void reduce(const ReduceArgs& args);
void argmax(const ArgmaxArgs& args);
void matmul(const MatmulArgs& args);
void softmax(const SoftmaxArgs& args);
void softmax_backward(const SoftmaxBackwardArgs& args);
void cross_entropy(const CrossEntropyArgs& args);
void cross_entropy_backward(const CrossEntropyBackwardArgs& args);
void dropout(const DropoutArgs& args);
void random(const RandomArgs& args);
void gather(const GatherArgs& args);
void gather_backward(const GatherBackwardArgs& args);
void one_hot(const OneHotArgs& args);
void sgd(const SgdArgs& args);
void adam(const AdamArgs& args);
void rmsprop(const RmspropArgs& args);
void adagrad(const AdagradArgs& args);
void lion(const LionArgs& args);
}  // namespace cpu

// Each enqueues its work on `stream` and returns; none waits for the device.
namespace gpu {
void unary(const UnaryArgs& args, StreamState& stream);
void binary(const BinaryArgs& args, StreamState& stream);
void where(const WhereArgs& args, StreamState& stream);
void fill(const FillArgs& args, StreamState& stream);
void arange(const ArangeArgs& args, StreamState& stream);
void reduce(const ReduceArgs& args, StreamState& stream);
void argmax(const ArgmaxArgs& args, StreamState& stream);
void matmul(const MatmulArgs& args, StreamState& stream);
void softmax(const SoftmaxArgs& args, StreamState& stream);
void softmax_backward(const SoftmaxBackwardArgs& args, StreamState& stream);
void cross_entropy(const CrossEntropyArgs& args, StreamState& stream);
void cross_entropy_backward(const CrossEntropyBackwardArgs& args, StreamState& stream);
void dropout(const DropoutArgs& args, StreamState& stream);
void random(const RandomArgs& args, StreamState& stream);
void gather(const GatherArgs& args, StreamState& stream);
void gather_backward(const GatherBackwardArgs& args, StreamState& stream);
void one_hot(const OneHotArgs& args, StreamState& stream);
void sgd(const SgdArgs& args, StreamState& stream);
void adam(const AdamArgs& args, StreamState& stream);
void rmsprop(const RmspropArgs& args, StreamState& stream);
void adagrad(const AdagradArgs& args, StreamState& stream);
void lion(const LionArgs& args, StreamState& stream);
}  // namespace gpu

}  // namespace capstan

#include "nn/activations.h"

#include "autograd/layout.h"
#include "autograd/loss.h"
#include "autograd/math.h"

namespace capstan::nn {

Tensor ReLU::forward(const Tensor& x) { return relu(x); }

Tensor GELU::forward(const Tensor& x) { return gelu(x); }

Tensor Tanh::forward(const Tensor& x) { return tanh(x); }

Tensor Sigmoid::forward(const Tensor& x) { return sigmoid(x); }

Tensor Softmax::forward(const Tensor& x) { return softmax(x, axis_); }

Dropout::Dropout(double p, const Generator* generator, Where where) : p_(p) {
  const CallSite site(where);
  CAPSTAN_CHECK(p >= 0.0 && p <= 1.0, ValueError, "dropout: p must be in [0, 1], got ", p);
  if (generator != nullptr) generator_ = std::make_shared<Generator>(*generator);
}

Tensor Dropout::forward(const Tensor& x) { return dropout(x, p_, is_training(), generator_.get()); }

Tensor Flatten::forward(const Tensor& x) { return x.flatten(first_, last_); }

}  // namespace capstan::nn

#include "autograd/linalg.h"
#include "autograd/reduce.h"

// Members that only pass on to the free functions.
namespace capstan {

Tensor Tensor::sum(const Axes& axes, bool keepdim, Where where) const {
  return capstan::sum(*this, axes, keepdim, where);
}

Tensor Tensor::mean(const Axes& axes, bool keepdim, Where where) const {
  return capstan::mean(*this, axes, keepdim, where);
}

Tensor Tensor::max(const Axes& axes, bool keepdim, Where where) const {
  return capstan::max(*this, axes, keepdim, where);
}

Tensor Tensor::argmax(int axis, bool keepdim, Where where) const {
  return capstan::argmax(*this, axis, keepdim, where);
}

Tensor Tensor::matmul(const Tensor& other, Where where) const {
  return capstan::matmul(*this, other, where);
}

}  // namespace capstan

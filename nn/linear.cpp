#include "nn/linear.h"

#include <cmath>

#include "autograd/linalg.h"
#include "framework/tensor/factory.h"
#include "nn/init.h"

namespace capstan::nn {

Linear::Linear(std::int64_t in_features, std::int64_t out_features, LinearOptions options,
               Where where) {
  const CallSite site(where);
  CAPSTAN_CHECK(in_features >= 1 && out_features >= 1, ValueError,
                "linear: both sizes must be at least 1, got in_features ", in_features,
                " and out_features ", out_features);
  CAPSTAN_CHECK(is_floating(options.dtype), DTypeError, "linear: dtype must be floating, got ",
                options.dtype);

  const TensorOptions place{.dtype = options.dtype, .device = options.device};
  const double bound = 1.0 / std::sqrt(static_cast<double>(in_features));
  weight = register_parameter("weight", empty({out_features, in_features}, place));
  init::uniform_(weight, -bound, bound, options.generator);
  if (options.bias) {
    bias = register_parameter("bias", empty({out_features}, place));
    init::uniform_(bias, -bound, bound, options.generator);
  }
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias); }

}  // namespace capstan::nn

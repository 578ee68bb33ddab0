#include "ops/dropout.h"

#include "framework/runtime/dispatch.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/op_scope.h"
#include "ops/checks.h"
#include "ops/elementwise.h"
#include "ops/kernels.h"

namespace capstan::ops {

Dropout dropout(const Tensor& x, double p, const Generator& generator) {
  CAPSTAN_CHECK(p >= 0.0 && p <= 1.0, ValueError, "dropout: needs p in [0, 1], got ", p);
  detail::check_floating("dropout", x);
  CAPSTAN_CHECK(generator.device() == x.device(), DeviceError, "dropout: the generator is on ",
                generator.device(), ", got x on ", x.device(),
                "; make a generator for that device");
  const Tensor dense = contiguous(x);
  Dropout result{
      .y = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()}),
      .mask = empty(x.shape(), {.dtype = DType::boolean, .device = x.device()}),
  };
  if (x.numel() == 0) return result;
  const OpScope scope("dropout", {&dense}, {&result.y, &result.mask});
  dispatch(x.device(), cpu::dropout, gpu::dropout,
           DropoutArgs{
               .x = dense.raw_data(),
               .y = result.y.raw_data(),
               .mask = result.mask.data<bool>(),
               .numel = x.numel(),
               .p = p,
               .dtype = x.dtype(),
               .random = generator.reserve(x.numel()),
           });
  return result;
}

}  // namespace capstan::ops

#include "ops/dropout.h"

#include "autograd/arithmetic.h"
#include "autograd/broadcast.h"
#include "autograd/layout.h"
#include "autograd/node.h"

namespace capstan {

Tensor dropout(const Tensor& x, double p, bool training, const Generator* generator, Where where) {
  const CallSite site(where);
  CAPSTAN_CHECK(p >= 0.0 && p <= 1.0, ValueError, "dropout: p must lie in [0, 1], got ", p,
                "; it is the share of elements that become 0");
  if (!training || p == 0.0) return x;

  auto [y, mask] =
      ops::dropout(x, p, generator != nullptr ? *generator : default_generator(x.device()));
  if (autograd::needs_grad(x)) {
    autograd::record(y, "dropout", {&x},
                     [mask = autograd::Saved(mask),
                      scale = p < 1.0 ? 1.0 / (1.0 - p) : 0.0](autograd::BackwardContext& context) {
                       const Tensor g = context.grad() * scale;
                       context.set(
                           0, capstan::where(mask.get(context), g, autograd::scalar_like(g, 0.0)));
                     });
  }
  return y;
}

}  // namespace capstan

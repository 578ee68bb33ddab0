#include "autograd/node.h"
#include "framework/tensor/view.h"

namespace capstan::autograd {

Saved::Saved(const Tensor& tensor) : tensor_(tensor) {
  if (!tensor.defined()) return;
  storage_serial_ = tensor.storage()->serial();
  version_ = tensor.storage()->version();
}

Saved Saved::output(const Tensor& tensor, std::uint32_t output) {
  // The tensor itself owns the node through its slot; a view without one breaks the cycle.
  Saved saved(view::alias(tensor));
  saved.output_ = output;
  saved.is_output_ = true;
  return saved;
}

Tensor Saved::get(const BackwardContext& context) const {
  const char* name = context.node().name;
  if (!tensor_.defined()) {
    CAPSTAN_CHECK(version_ == kNothing, GradError, "backward of ", name,
                  ": its saved tensors were dropped by an earlier backward; pass retain_graph = "
                  "true to that one");
    return {};
  }
  const Storage& storage = *tensor_.storage();
  CAPSTAN_CHECK(storage.serial() == storage_serial_, GradError, "backward of ", name,
                ": a tensor saved by its forward, ", describe(tensor_),
                ", was given other memory by set_data; run the forward again");
  CAPSTAN_CHECK(storage.version() == version_, GradError, "backward of ", name,
                ": a tensor saved by its forward, ", describe(tensor_),
                ", was changed in place since: it was at version ", version_, ", is at version ",
                storage.version(), "; use an operation that is not in place, or clone() it before");
  if (!is_output_ || !grad_enabled()) return tensor_;

  Tensor result = view::alias(tensor_);
  Slot& slot = detail::make_slot(result);
  slot.node = Ref<Node>(&context.node());
  slot.output = output_;
  slot.leaf = false;
  slot.requires_grad = true;
  return result;
}

}  // namespace capstan::autograd

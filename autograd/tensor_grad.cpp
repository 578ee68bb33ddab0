#include <atomic>

#include "autograd/engine.h"
#include "autograd/node.h"
#include "framework/core/counters.h"
#include "framework/tensor/tensor.h"
#include "framework/tensor/view.h"
#include "framework/tensor/write_journal.h"

// The members of Tensor that concern gradients.
namespace capstan {
namespace {

using autograd::Slot;
using autograd::slot_of;

/// Gradient storage of a leaf, or null.
autograd::LeafNode* leaf_node_of(const Tensor& tensor) noexcept {
  const Slot* slot = slot_of(tensor);
  if (slot == nullptr || !slot->leaf) return nullptr;
  return static_cast<autograd::LeafNode*>(slot->node.get());
}

}  // namespace

bool Tensor::requires_grad() const noexcept { return autograd::requires_grad(*this); }

const Tensor& Tensor::set_requires_grad(bool value, Where where) const {
  const CallSite site(where);
  CAPSTAN_CHECK(is_leaf(), GradError, "set_requires_grad: ", describe(*this),
                " is the result of a recorded operation; detach() it first");
  CAPSTAN_CHECK(!value || is_floating(dtype()), DTypeError,
                "set_requires_grad: needs a floating dtype, got ", dtype());
  if (const Slot* slot = slot_of(*this); slot != nullptr && slot->requires_grad != value) {
    detail::count(counters().rebinds);
  }
  if (value) {
    (void)autograd::detail::make_leaf_node(*this);
    slot_of(*this)->requires_grad = true;
  } else if (Slot* slot = slot_of(*this); slot != nullptr) {
    slot->requires_grad = false;
  }
  return *this;
}

bool Tensor::is_leaf() const noexcept {
  const Slot* slot = slot_of(*this);
  return slot == nullptr || slot->leaf;
}

Tensor Tensor::grad() const {
  if (const autograd::LeafNode* node = leaf_node_of(*this)) return node->get_grad();
  const Slot* slot = slot_of(*this);
  return slot != nullptr && slot->retained ? *slot->retained : Tensor();
}

void Tensor::set_grad(const Tensor& grad, Where where) const {
  const CallSite site(where);
  CAPSTAN_CHECK(is_leaf(), GradError, "set_grad: ", describe(*this),
                " is the result of a recorded operation, whose gradient only backward sets");
  if (grad.defined()) {
    CAPSTAN_CHECK(!grad.is_same(*this), ValueError,
                  "set_grad: a tensor cannot be its own gradient");
    autograd::detail::check_gradient(grad, *this, "set_grad: the gradient");
  } else if (leaf_node_of(*this) == nullptr) {
    return;
  }
  autograd::detail::make_leaf_node(*this).set_grad(grad);
}

void Tensor::backward(const Tensor& gradient, BackwardOptions options, Where where) const {
  capstan::backward({*this}, {gradient}, options, where);
}

Tensor Tensor::detach() const { return view::alias(*this); }

void Tensor::retain_grad(Where where) const {
  const CallSite site(where);
  CAPSTAN_CHECK(requires_grad(), GradError, "retain_grad: ", describe(*this),
                " requires no gradient");
  Slot& slot = *slot_of(*this);
  if (slot.leaf || slot.retained) return;
  slot.retained = std::make_shared<Tensor>();
  slot.node->hooks.push_back({slot.output, 0, nullptr, slot.retained});
}

int Tensor::register_hook(std::function<Tensor(const Tensor&)> hook, Where where) const {
  const CallSite site(where);
  CAPSTAN_CHECK(requires_grad(), GradError, "register_hook: ", describe(*this),
                " requires no gradient");
  CAPSTAN_CHECK(hook != nullptr, ValueError, "register_hook: the hook is empty");
  static constinit std::atomic<int> next{1};
  const int id = next.fetch_add(1, std::memory_order_relaxed);
  const Slot& slot = *slot_of(*this);
  slot.node->hooks.push_back(
      {slot.output, id, std::make_shared<std::function<Tensor(const Tensor&)>>(std::move(hook)),
       nullptr});
  return id;
}

void Tensor::remove_hook(int id) const {
  const Slot* slot = slot_of(*this);
  if (slot == nullptr || !slot->node || id == 0) return;
  std::erase_if(slot->node->hooks, [&](const autograd::Node::Hook& hook) { return hook.id == id; });
}

void Tensor::set_data(const Tensor& data, Where where) const {
  const CallSite site(where);
  CAPSTAN_CHECK(is_leaf(), GradError, "set_data: ", describe(*this),
                " is the result of a recorded operation; only leaves can be given other memory");
  CAPSTAN_CHECK(data.dtype() == dtype(), DTypeError, "set_data: the tensor is ", dtype(),
                ", the data ", data.dtype());
  const bool moves = data.device() != device();
  const bool reshapes = data.shape() != shape();
  CAPSTAN_CHECK(moves || !reshapes || !grad().defined(), ShapeError,
                "set_data: the tensor has shape ", shape(), " and a gradient, the data has ",
                data.shape(), "; clear the gradient with set_grad(Tensor()) first");

  TensorImpl& impl = checked();
  if (WriteJournal* journal = WriteJournal::current()) {
    journal->keep_host(
        &impl, [self = *this, storage = impl.storage, shape = impl.shape, strides = impl.strides,
                offset = impl.offset, numel = impl.numel, is_view = impl.is_view,
                node = slot_of(*this) != nullptr ? slot_of(*this)->node : Ref<autograd::Node>()] {
          TensorImpl& old = *self.impl_;
          if (old.storage != storage) {
            old.storage->tensor_left();
            storage->tensor_returned();
          }
          old.storage = storage;
          old.shape = shape;
          old.strides = strides;
          old.offset = offset;
          old.numel = numel;
          old.is_view = is_view;
          if (node) {
            slot_of(self)->node = node;
            node->released = false;
          }
        });
  }
  detail::count(counters().rebinds);
  const TensorImpl& source = *data.impl();
  if (impl.storage != source.storage) {
    impl.storage->tensor_left();
    source.storage->tensor_returned();
  }
  impl.storage = source.storage;
  impl.shape = source.shape;
  impl.strides = source.strides;
  impl.offset = source.offset;
  impl.numel = source.numel;
  impl.is_view = source.is_view;

  if (Slot* slot = slot_of(*this); slot != nullptr && slot->node && (moves || reshapes)) {
    // Graphs recorded before would deliver a gradient that no longer fits.
    const Ref<autograd::Node> old = std::exchange(slot->node, nullptr);
    old->released = true;
    autograd::detail::make_leaf_node(*this).hooks = old->hooks;
  }
}

}  // namespace capstan

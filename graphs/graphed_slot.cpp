#include <utility>

#include "autograd/grad_mode.h"
#include "framework/core/error.h"
#include "graphs/graphed.h"
#include "ops/creation.h"
#include "ops/elementwise.h"

namespace capstan::detail {

void GraphedSlot::drop() {
  dropped_ = true;
  retire(Lent::result);
  retire(Lent::gradient);
  forward.reset();
  backward.reset();
  inputs.clear();
  outputs = TensorTree();
  values.clear();
  grad_outputs.clear();
  grad_inputs.clear();
  saved.clear();
}

Tensor GraphedSlot::lend(const Tensor& value, Lent kind) {
  // The storage leaves the list as it dies, so it needs to be known to its own release.
  const auto known = std::make_shared<Storage*>(nullptr);
  const auto index = static_cast<std::size_t>(kind);
  auto storage =
      make_ref<Storage>(value.device(), value.storage()->data(), value.storage()->bytes(),
                        [slot = shared_from_this(), known, index] {
                          const std::lock_guard lock(slot->mutex_);
                          slot->lent_[index].erase(*known);
                        });
  *known = storage.get();
  {
    const std::lock_guard lock(mutex_);
    lent_[index].insert(storage.get());
  }
  const TensorImpl& from = *value.impl();
  auto impl = make_ref<TensorImpl>();
  impl->storage = std::move(storage);
  impl->shape = from.shape;
  impl->strides = from.strides;
  impl->offset = from.offset;
  impl->numel = from.numel;
  impl->dtype = from.dtype;
  return Tensor(std::move(impl));
}

void GraphedSlot::retire(Lent kind) {
  const std::lock_guard lock(mutex_);
  auto& lent = lent_[static_cast<std::size_t>(kind)];
  if (lent.empty()) return;
  const auto reason = std::make_shared<const std::string>(
      "this is a static result of \"" + name_ +
      "\", which a later call has overwritten; clone() it before that call, or leave "
      "static_results off");
  for (Storage* storage : lent) storage->refuse_use(reason);
  lent.clear();
}

GraphedNode::GraphedNode(std::shared_ptr<Graphed> graphed, std::shared_ptr<GraphedSlot> slot,
                         std::vector<autograd::Edge> edges)
    : Node("graphed callable", graphed->device,
           static_cast<std::uint32_t>(slot->differentiable.size())),
      graphed_(std::move(graphed)),
      slot_(std::move(slot)),
      ticket_(slot_->ticket),
      edges_(std::move(edges)) {
  slot_->awaits_backward = true;
}

GraphedNode::~GraphedNode() { GraphedNode::release_saved(); }

void GraphedNode::release_saved() {
  if (slot_->ticket == ticket_) slot_->awaits_backward = false;
}

void GraphedNode::backward(autograd::BackwardContext& context) {
  const std::string& callable = graphed_->name;
  CAPSTAN_CHECK(!grad_enabled(), GradError, "backward of ", callable,
                ": a graphed callable cannot be differentiated twice; leave create_graph off, or "
                "call the original");
  CAPSTAN_CHECK(!slot_->dropped(), GradError, "backward of ", callable,
                ": it was reset, and what its forward had saved is gone; run the forward again");
  CAPSTAN_CHECK(slot_->ticket == ticket_, GradError, "backward of ", callable,
                ": what this forward had saved was overwritten by a later call; at most ",
                graphed_->options.slots,
                " forwards may wait for their backward: make the callable with more slots");

  for (const SavedVersion& saved : slot_->saved) {
    CAPSTAN_CHECK(saved.storage->version() == saved.version, GradError, "backward of ", callable,
                  ": ", saved.name, " was modified in place after the forward, and backward ",
                  "needs it as it was; call backward before that, or write a copy");
  }
  {
    const auto turn = graphed_->take_turn();
    for (std::size_t i = 0; i < slot_->grad_outputs.size(); ++i) {
      const Tensor& grad = context.grad(i);
      if (grad.defined()) {
        ops::copy(slot_->grad_outputs[i], grad);
      } else {
        ops::fill(slot_->grad_outputs[i], 0.0);
      }
    }
  }
  slot_->backward->replay();
  slot_->retire(GraphedSlot::Lent::gradient);
  ++graphed_->stats.backwards;
  for (std::size_t i = 0; i < edges_.size(); ++i) {
    const Tensor& grad = slot_->grad_inputs[i];
    if (!grad.defined() || !edges_[i].node || !context.needs(i)) continue;
    // Gradients of leaves are accumulated, so they never are the graph's own.
    const bool lent = graphed_->options.static_results && !edges_[i].node->is_leaf();
    context.set(i, lent ? slot_->lend(grad, GraphedSlot::Lent::gradient) : ops::clone(grad));
  }
}

}  // namespace capstan::detail

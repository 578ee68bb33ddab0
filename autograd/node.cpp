#include "autograd/node.h"

#include <atomic>

#include "autograd/arithmetic.h"
#include "autograd/leaf_watch.h"
#include "framework/tensor/write_journal.h"
#include "ops/elementwise.h"

namespace capstan::autograd {
namespace {

std::uint64_t next_number(std::atomic<std::uint64_t>& counter) noexcept {
  return counter.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t next_leaf() noexcept {
  static constinit std::atomic<std::uint64_t> counter{1};
  return next_number(counter);
}

constinit std::atomic<std::uint64_t> operations{0};

}  // namespace

std::uint64_t Node::next_sequence() noexcept {
  return kFirstOperation + operations.load(std::memory_order_relaxed);
}

bool BackwardContext::needs(std::size_t index) const {
  return needed_ != nullptr ? needed_[index] != 0 : static_cast<bool>(node_.edges()[index].node);
}

Node::Node(const char* function, Device place, std::uint32_t count)
    : name(function),
      where(capstan::detail::call_context.where),
      device(place),
      outputs(count),
      sequence(kFirstOperation + next_number(operations)),
      stream(&capstan::detail::current_stream_state(place)),
      more_outputs_(count > 1 ? std::make_unique<OutputMeta[]>(count - 1) : nullptr) {}

Node::Node(LeafTag, Device place)
    : name("leaf"),
      where(capstan::detail::call_context.where),
      device(place),
      outputs(1),
      sequence(next_leaf()) {}

Node::~Node() = default;

void Node::describe_output(std::uint32_t number, const Tensor& tensor) {
  OutputMeta& meta = number == 0 ? first_output_ : more_outputs_[number - 1];
  meta = {tensor.shape(), tensor.dtype(), tensor.device()};
}

// Edges and saved tensors own further nodes. Destroying those from within would take a stack frame
// per node, so the outermost call destroys what the inner ones hand to it.
void Node::destroy() const noexcept {
  static constinit thread_local const Node* doomed = nullptr;
  static constinit thread_local bool destroying = false;
  if (destroying) {
    next_doomed_ = std::exchange(doomed, this);
    return;
  }
  destroying = true;
  delete this;
  while (doomed != nullptr) {
    const Node* node = std::exchange(doomed, doomed->next_doomed_);
    delete node;
  }
  destroying = false;
}

bool is_exclusive(const Tensor& grad) {
  const TensorImpl& impl = *grad.impl();
  const Storage& storage = *impl.storage;
  // A small view would keep a large buffer alive, hence the comparison of sizes; and history has no
  // place where none is recorded.
  return impl.use_count() == 1 && storage.use_count() == 1 && !storage.is_borrowed() &&
         static_cast<std::size_t>(impl.numel) * size_of(impl.dtype) == storage.bytes() &&
         grad.is_contiguous() && (grad_enabled() || !impl.grad_slot);
}

LeafNode::LeafNode(const Tensor& leaf) : Node(LeafTag{}, leaf.device()) {
  describe_output(0, leaf);
}

void LeafNode::backward(BackwardContext& context) { commit(prepare(context.grad(), false)); }

LeafNode::Update LeafNode::prepare(Tensor gradient, bool may_keep) const {
  const Tensor old = get_grad();
  if (!old.defined()) {
    if (may_keep && is_exclusive(gradient)) return {std::move(gradient), false};
    return {grad_enabled() ? gradient.clone() : ops::clone(gradient), false};
  }
  // Users may hold a gradient that has a history, and one in strange strides may overlap itself.
  if (grad_enabled() || requires_grad(old)) {
    const GradMode recording(true);
    return {add(old, gradient), true};
  }
  if (!old.is_contiguous()) return {ops::binary(BinaryOp::add, old, gradient), true};
  return {std::move(gradient), false};
}

void LeafNode::commit(Update update) {
  announce_to_journal();
  const std::lock_guard lock(mutex_);
  if (update.replaces || !grad_.defined()) {
    grad_ = std::move(update.tensor);
  } else {
    ops::binary_out(BinaryOp::add, grad_, update.tensor, grad_);
  }
}

Tensor LeafNode::get_grad() const {
  LeafWatch::reading(*this);
  const std::lock_guard lock(mutex_);
  return grad_;
}

void LeafNode::set_grad(Tensor gradient) {
  LeafWatch::replacing(*this);
  announce_to_journal();
  const std::lock_guard lock(mutex_);
  grad_ = std::move(gradient);
}

void LeafNode::announce_to_journal() {
  WriteJournal* journal = WriteJournal::current();
  if (journal == nullptr) [[likely]]
    return;
  journal->keep_host(this, [leaf = Ref<LeafNode>(this), old = get_grad()] {
    const std::lock_guard lock(leaf->mutex_);
    leaf->grad_ = old;
  });
}

Edge edge_of(const Tensor& tensor) {
  const Slot* slot = slot_of(tensor);
  if (slot == nullptr || !slot->requires_grad) return {};
  return {slot->node, slot->output};
}

namespace detail {

Slot& make_slot(const Tensor& tensor) {
  Ref<GradSlot>& slot = tensor.impl()->grad_slot;
  if (!slot) slot = make_ref<Slot>();
  return static_cast<Slot&>(*slot);
}

LeafNode& make_leaf_node(const Tensor& leaf) {
  Slot& slot = make_slot(leaf);
  if (!slot.node) slot.node = make_ref<LeafNode>(leaf);
  return static_cast<LeafNode&>(*slot.node);
}

void attach(const Tensor& output, Ref<Node> node, std::uint32_t number) {
  node->describe_output(number, output);
  Slot& slot = make_slot(output);
  if (slot.retained) {
    // An operation in place: `grad()` is about the tensor as it is from now on.
    std::erase_if(slot.node->hooks,
                  [&](const Node::Hook& hook) { return hook.retained == slot.retained; });
    node->hooks.push_back({number, 0, nullptr, slot.retained});
  }
  slot.node = std::move(node);
  slot.output = number;
  slot.leaf = false;
  slot.requires_grad = true;
}

}  // namespace detail
}  // namespace capstan::autograd

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "autograd/grad_mode.h"
#include "framework/runtime/stream.h"
#include "framework/tensor/tensor.h"

namespace capstan::autograd {

class Node;

/// Points from a node to the origin of one of its inputs: output `output` of `node`.
struct Edge {
  Ref<Node> node;
  std::uint32_t output = 0;
};

/// What a node's backward sees: gradients of its outputs, and a place for those of its inputs.
class BackwardContext {
 public:
  /// `needed` says for each input whether its gradient is used; null: wherever there is an edge.
  BackwardContext(Node& node, std::span<Tensor> output_grads, std::span<Tensor> input_grads,
                  const std::uint8_t* needed = nullptr)
      : node_(node), output_grads_(output_grads), input_grads_(input_grads), needed_(needed) {}

  [[nodiscard]] Node& node() const noexcept { return node_; }
  /// Gradient of output `index`; undefined where nothing came in (only with several outputs).
  [[nodiscard]] const Tensor& grad(std::size_t index = 0) const { return output_grads_[index]; }
  [[nodiscard]] std::size_t output_count() const noexcept { return output_grads_.size(); }
  /// True if the gradient of input `index` will be used.
  [[nodiscard]] bool needs(std::size_t index) const;
  /// Sets the gradient of input `index`; it must have the input's shape.
  void set(std::size_t index, Tensor grad) { input_grads_[index] = std::move(grad); }

 private:
  Node& node_;
  std::span<Tensor> output_grads_;
  std::span<Tensor> input_grads_;
  const std::uint8_t* needed_;
};

/// What the gradient of an output must look like.
struct OutputMeta {
  Shape shape;
  DType dtype = DType::float32;
  Device device;
};

/// One recorded operation. Its backward is written in differentiable operations wherever the
/// derivative is to be differentiable again; the engine turns recording on for `create_graph`.
class Node : public RefCounted {
 public:
  /// Takes the user's line, the current stream of `device` and the next sequence number.
  Node(const char* name, Device device, std::uint32_t outputs);
  ~Node() override;

  [[nodiscard]] virtual std::span<Edge> edges() noexcept = 0;
  virtual void backward(BackwardContext& context) = 0;
  /// Drops saved values once they cannot be needed; a later backward through here is an error.
  virtual void release_saved() = 0;

  [[nodiscard]] const OutputMeta& output(std::uint32_t number) const noexcept {
    return number == 0 ? first_output_ : more_outputs_[number - 1];
  }
  void describe_output(std::uint32_t number, const Tensor& tensor);
  /// Operations that this thread records from here on have this number or a higher one.
  [[nodiscard]] static std::uint64_t next_sequence() noexcept;
  /// True for a LeafNode.
  [[nodiscard]] bool is_leaf() const noexcept { return sequence < kFirstOperation; }

  const char* const name;
  const Where where;
  const Device device;
  const std::uint32_t outputs;
  /// Later nodes have higher numbers; leaves are below all others.
  const std::uint64_t sequence;
  /// The stream of the forward; backward runs there, unless the caller's stream captures. Null for
  /// leaves, which accumulate on the caller's stream.
  const Ref<StreamState> stream;
  /// True once `release_saved` ran.
  bool released = false;
  /// True if it saves nothing that backward would drop, so that several graphs can share it.
  bool reusable = false;

  /// Something to do with the complete gradient of an output: call `function`, or keep it in
  /// `retained` at the end of the pass.
  struct Hook {
    std::uint32_t output;
    int id;
    std::shared_ptr<std::function<Tensor(const Tensor&)>> function;  // shared: it may have state
    std::shared_ptr<Tensor> retained;
  };
  /// In the order of registration.
  std::vector<Hook> hooks;

 protected:
  struct LeafTag {};
  Node(LeafTag, Device device);

 private:
  static constexpr std::uint64_t kFirstOperation = std::uint64_t{1} << 62;
  void destroy() const noexcept override;

  OutputMeta first_output_;
  std::unique_ptr<OutputMeta[]> more_outputs_;
  mutable const Node* next_doomed_ = nullptr;
};

/// True if nobody else can see the memory of `grad`, which is dense: it may be kept or overwritten.
[[nodiscard]] bool is_exclusive(const Tensor& grad);

/// Where gradients of a leaf end.
class LeafNode final : public Node {
 public:
  explicit LeafNode(const Tensor& leaf);
  [[nodiscard]] std::span<Edge> edges() noexcept override { return {}; }
  void backward(BackwardContext& context) override;
  void release_saved() override {}

  /// Everything about adding `gradient` to `grad` that can fail for want of memory; changes
  /// nothing. A `gradient` that is exclusive will be kept itself if `may_keep`.
  struct Update {
    Tensor tensor;
    bool replaces = false;
  };
  [[nodiscard]] Update prepare(Tensor gradient, bool may_keep) const;
  void commit(Update update);
  [[nodiscard]] Tensor get_grad() const;
  void set_grad(Tensor gradient);

 private:
  void announce_to_journal();

  mutable std::mutex mutex_;  // threads may share parameters
  Tensor grad_;
};

/// What autograd hangs on a tensor. A leaf that requires a gradient points to its LeafNode; a
/// result points to the node that made it. `retained` holds the gradient of a result with
/// retain_grad.
struct Slot final : GradSlot {
  Ref<Node> node;  // may be null in a leaf that requires none
  std::uint32_t output = 0;
  bool leaf = true;
  bool requires_grad = false;
  std::shared_ptr<Tensor> retained;
};

/// The slot of `tensor`, or null.
[[nodiscard]] inline Slot* slot_of(const Tensor& tensor) noexcept {
  return tensor.defined() ? static_cast<Slot*>(tensor.impl()->grad_slot.get()) : nullptr;
}
[[nodiscard]] inline bool requires_grad(const Tensor& tensor) noexcept {
  const Slot* slot = slot_of(tensor);
  return slot != nullptr && slot->requires_grad;
}
/// True if an operation on these tensors must be recorded.
template <typename... Tensors>
[[nodiscard]] bool needs_grad(const Tensors&... tensors) noexcept {
  return grad_enabled() && (requires_grad(tensors) || ...);
}
/// Where the gradient of `tensor` goes: empty if it requires none.
[[nodiscard]] Edge edge_of(const Tensor& tensor);

/// A tensor kept for backward, together with its version. Saving the output of the very node that
/// keeps it makes no cycle.
class Saved {
 public:
  Saved() noexcept = default;
  /// An input of the operation (or any other tensor).
  explicit Saved(const Tensor& tensor);
  /// An output; `output` is its number.
  [[nodiscard]] static Saved output(const Tensor& tensor, std::uint32_t output = 0);

  /// @throws GradError  if the tensor was written since, naming the operation, or if the node was
  ///   released by an earlier backward.
  [[nodiscard]] Tensor get(const BackwardContext& context) const;
  [[nodiscard]] bool defined() const noexcept { return tensor_.defined(); }
  void reset() noexcept { tensor_ = Tensor(); }

 private:
  static constexpr std::int64_t kNothing = -1;  // version_ of a Saved that never held a tensor

  Tensor tensor_;
  std::uint64_t storage_serial_ = 0;
  std::int64_t version_ = kNothing;
  std::uint32_t output_ = 0;
  bool is_output_ = false;
};

namespace detail {

/// Node of a fixed number of inputs around a callable `void(BackwardContext&)`, which holds the
/// Saved values as captures; dropping it drops them.
template <std::size_t Inputs, typename Backward>
class FunctionNode final : public Node {
 public:
  FunctionNode(const char* function, Device place, std::uint32_t count, Backward backward)
      : Node(function, place, count), backward_(std::move(backward)) {}
  [[nodiscard]] std::span<Edge> edges() noexcept override { return edges_; }
  void backward(BackwardContext& context) override { (*backward_)(context); }
  void release_saved() override { backward_.reset(); }

 private:
  std::array<Edge, Inputs> edges_;
  std::optional<Backward> backward_;
};

/// Throws unless `gradient` can be that of `of`; the message begins with `what`.
template <typename... Parts>
void check_gradient(const Tensor& gradient, const Tensor& of, const Parts&... what) {
  CAPSTAN_CHECK(gradient.shape() == of.shape(), ShapeError, what..., " has shape ",
                gradient.shape(), ", its tensor has ", of.shape());
  CAPSTAN_CHECK(gradient.dtype() == of.dtype(), DTypeError, what..., " is ", gradient.dtype(),
                ", its tensor is ", of.dtype());
  CAPSTAN_CHECK(gradient.device() == of.device(), DeviceError, what..., " is on ",
                gradient.device(), ", its tensor is on ", of.device());
}
/// The slot of `tensor`, made if there is none.
[[nodiscard]] Slot& make_slot(const Tensor& tensor);
/// The LeafNode of a leaf, made if there is none.
[[nodiscard]] LeafNode& make_leaf_node(const Tensor& leaf);
/// Makes `output` the result of output number `number` of `node`.
void attach(const Tensor& output, Ref<Node> node, std::uint32_t number);

}  // namespace detail

/// Records that `output` was computed from `inputs` by `name`; call only if
/// `needs_grad(inputs...)`. `backward` is a callable `void(BackwardContext&)`:
///
///     Tensor exp(const Tensor& x, Where where) {
///       const CallSite site(where);
///       Tensor y = ops::unary(UnaryOp::exp, x);
///       if (needs_grad(x)) {
///         record(y, "exp", {&x}, [y = Saved::output(y)](BackwardContext& context) {
///           context.set(0, context.grad() * y.get(context));
///         });
///       }
///       return y;
///     }
///
/// For an operation in place, `output` is also an input; it gets a new history.
template <std::size_t Inputs, typename Backward>
void record(const Tensor& output, const char* name, const Tensor* const (&inputs)[Inputs],
            Backward backward) {
  using Function = detail::FunctionNode<Inputs, Backward>;
  auto node = make_ref<Function>(name, output.device(), 1u, std::move(backward));
  for (std::size_t i = 0; i < Inputs; ++i) node->edges()[i] = edge_of(*inputs[i]);
  detail::attach(output, std::move(node), 0);
}

}  // namespace capstan::autograd

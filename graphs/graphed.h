#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "autograd/node.h"
#include "graphs/graphed_callable.h"
#include "graphs/replay_order.h"

// What lies behind GraphedCallable.
namespace capstan::detail {

/// What a call must bring at one place of its argument tree.
struct ArgumentSpec {
  std::string path;  // "argument", "argument [1]["mask"]"
  Shape shape;
  DType dtype = DType::float32;
  bool requires_grad = false;
};

/// Memory as the last forward found it, for a backward that reads it again.
struct SavedVersion {
  Ref<const Storage> storage;
  std::string name;
  std::int64_t version = 0;
};

/// Forward and backward recorded once: the memory of one call in flight.
class GraphedSlot : public std::enable_shared_from_this<GraphedSlot> {
 public:
  GraphedSlot(Device device, const std::string& name)
      : forward(device, {.name = name + ".forward"}), name_(name) {}

  /// Drops graphs and tensors; whoever still refers to this slot finds it dropped.
  void drop();
  [[nodiscard]] bool dropped() const noexcept { return dropped_; }
  enum class Lent : std::uint8_t { result, gradient };
  /// The memory of `value` as a tensor of its own, which `retire` makes unreadable.
  [[nodiscard]] Tensor lend(const Tensor& value, Lent kind);
  void retire(Lent kind);

  Graph forward;
  std::unique_ptr<Graph> backward;            // null if there is nothing to differentiate
  std::vector<Tensor> inputs;                 // leaves
  TensorTree outputs;                         // with their history, which holds what backward needs
  std::vector<Tensor> values;                 // of the outputs, without history
  std::vector<std::uint32_t> differentiable;  // positions among the outputs
  std::vector<Tensor> grad_outputs;           // one for each of those
  std::vector<Tensor> grad_inputs;            // one for each target; undefined where unused
  std::uint64_t ticket = 0;                   // of the last forward
  std::vector<SavedVersion> saved;            // what backward reads and others may write
  bool awaits_backward = false;

 private:
  const std::string name_;
  bool dropped_ = false;
  std::mutex mutex_;                                  // tensors may die on any thread
  std::array<std::unordered_set<Storage*>, 2> lent_;  // by kind
};

/// A parameter or buffer as it was when recorded.
struct RecordedState {
  std::string name;  // "parameter "fc1.weight""
  Tensor tensor;
  Ref<Storage> storage;
  bool requires_grad = false;
};

/// What else than its arguments a callable's work depends on.
struct GraphedMode {
  std::vector<bool> training;     // of every module
  std::optional<DType> autocast;  // where Autocast converts to
  friend bool operator==(const GraphedMode&, const GraphedMode&) = default;
};

/// The recordings of one callable in one mode.
struct GraphedVariant {
  GraphedMode mode;
  std::vector<std::shared_ptr<GraphedSlot>> slots;
  std::vector<std::size_t> input_targets;       // arguments that require a gradient
  std::vector<Ref<autograd::LeafNode>> hidden;  // leaves that the callable refers to
  std::vector<RecordedState> states;
  std::size_t next = 0;  // slot
};

struct Graphed : std::enable_shared_from_this<Graphed> {
  nn::Module* module = nullptr;
  Graphable::Function function;
  TensorTree sample;  // structure alone counts
  std::vector<ArgumentSpec> arguments;
  std::string name;
  Device device;
  GraphedOptions options;  // pool is set
  std::shared_ptr<ReplayOrder> order;
  std::vector<GraphedVariant> variants;
  GraphedStats stats;
  std::optional<std::size_t> current;  // variant for the module as it is
  std::int64_t rebinds = -1;           // the process's counts when that was found out
  std::int64_t module_changes = -1;
  std::optional<DType> autocast;
  std::uint64_t tickets = 0;
  bool was_reset = false;

  TensorTree call(const TensorTree& tree, const Where& where);
  void reset();
  /// What follows on the current stream, while held, comes after all that uses the pool.
  [[nodiscard]] std::unique_lock<std::mutex> take_turn() const;
  /// The slot of the next call.
  [[nodiscard]] GraphedSlot& next_slot(GraphedVariant& variant) const;
  /// The recording used last, or the first. @throws StateError  if there is none.
  [[nodiscard]] GraphedVariant& recorded();
  /// The eager call.
  [[nodiscard]] TensorTree run(const TensorTree& tree) const;
  [[nodiscard]] GraphedMode mode() const;
  [[nodiscard]] std::vector<RecordedState> states() const;

 private:
  [[nodiscard]] std::vector<Tensor> checked_arguments(const TensorTree& tree) const;
  GraphedVariant* find_variant();
  GraphedVariant& record(std::span<const Tensor> given, const Where& where);
  [[nodiscard]] std::string changed_state(const GraphedVariant& variant) const;
  void load(GraphedSlot& slot, std::span<const Tensor> given);
};

/// Records all of them in the mode that they are in now, forwards in this order and backwards in
/// the reverse one, from the values of `samples`. All or nothing.
[[nodiscard]] std::vector<GraphedVariant> record_graphed(
    std::span<const std::shared_ptr<Graphed>> callables,
    std::span<const std::vector<Tensor>> samples, const Where& where);

/// The node of a call: its backward replays that of `slot`.
class GraphedNode final : public autograd::Node {
 public:
  GraphedNode(std::shared_ptr<Graphed> graphed, std::shared_ptr<GraphedSlot> slot,
              std::vector<autograd::Edge> edges);
  ~GraphedNode() override;
  [[nodiscard]] std::span<autograd::Edge> edges() noexcept override { return edges_; }
  void backward(autograd::BackwardContext& context) override;
  void release_saved() override;

 private:
  const std::shared_ptr<Graphed> graphed_;
  const std::shared_ptr<GraphedSlot> slot_;
  const std::uint64_t ticket_;
  std::vector<autograd::Edge> edges_;
};

}  // namespace capstan::detail

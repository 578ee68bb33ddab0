#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "graphs/graph.h"
#include "graphs/tensor_tree.h"
#include "nn/module.h"

namespace capstan {

/// What a graphed callable does when a parameter or buffer is no longer what was recorded: given
/// other memory, frozen, added or removed.
enum class OnChange : std::uint8_t {
  error,   ///< the call throws StateError naming it
  regraph  ///< the call records again
};

struct GraphedOptions {
  std::string name{};  ///< for messages and reports; empty: the module's name, or "callable"
  /// Trial runs of forward and backward before the recording. They leave no trace in parameters,
  /// buffers, gradients or generators. 0 is allowed.
  int warmup = 3;
  bool allow_unused_input = false;  ///< inputs or parameters that get no gradient are no error
  GraphPool pool{};                 ///< empty: one of their own, shared by all of one call
  CaptureErrorMode error_mode = CaptureErrorMode::thread_local_;
  /// How many forwards may wait for their backward at a time; each costs the memory of one.
  int slots = 1;
  /// Hand out the graph's own results and input gradients instead of copies. One that a later call
  /// has overwritten throws StateError when it is read, also through a view or a detached alias.
  bool static_results = false;
  OnChange on_change = OnChange::error;
  /// In another mode than the recorded one, train or eval and what Autocast converts to: record
  /// that mode as well, instead of running the callable eagerly, with arguments of any kind.
  bool graph_each_mode = false;
};

struct GraphedStats {
  std::int64_t replays = 0;       ///< calls that replayed the forward
  std::int64_t backwards = 0;     ///< backward replays
  std::int64_t eager_calls = 0;   ///< calls in a mode that was not recorded
  std::int64_t captures = 0;      ///< recordings: one for each mode, more after changes
  std::int64_t input_copies = 0;  ///< arguments that were not the graph's own inputs
};

namespace detail {
struct Graphed;
struct GraphableAccess;

/// Number `index` of the `count` tensors that a callable takes. @throws ValueError  unless the tree
/// is a list of so many, or, if it takes one, a tensor.
[[nodiscard]] Tensor argument(const TensorTree& tree, std::size_t index, std::size_t count);
}  // namespace detail

/// One thing to graph, with sample arguments whose structure, shapes, dtypes, device and
/// requires_grad all later calls share; their values do not matter and are not changed.
class Graphable {
 public:
  using Function = std::function<TensorTree(const TensorTree& arguments)>;

  /// `module` must live until it is ungraphed.
  Graphable(nn::Module& module, const Tensor& sample);
  /// A function of the whole argument tree.
  Graphable(Function function, TensorTree sample, std::string name = {});
  /// Any callable of up to four tensors that returns a tensor, several, or a tree.
  template <typename Callable>
  requires(!std::is_convertible_v<Callable, Function> && !std::is_base_of_v<nn::Module, Callable>)
      Graphable(Callable callable, TensorTree sample, std::string name = {})
      : Graphable(wrap(std::move(callable)), std::move(sample), std::move(name)) {}

 private:
  friend struct detail::GraphableAccess;

  template <typename Callable>
  [[nodiscard]] static Function wrap(Callable callable) {
    return [callable = std::move(callable)](const TensorTree& x) mutable -> TensorTree {
      if constexpr (std::is_invocable_v<Callable&, Tensor>) {
        return callable(detail::argument(x, 0, 1));
      } else if constexpr (std::is_invocable_v<Callable&, Tensor, Tensor>) {
        return callable(detail::argument(x, 0, 2), detail::argument(x, 1, 2));
      } else if constexpr (std::is_invocable_v<Callable&, Tensor, Tensor, Tensor>) {
        return callable(detail::argument(x, 0, 3), detail::argument(x, 1, 3),
                        detail::argument(x, 2, 3));
      } else if constexpr (std::is_invocable_v<Callable&, Tensor, Tensor, Tensor, Tensor>) {
        return callable(detail::argument(x, 0, 4), detail::argument(x, 1, 4),
                        detail::argument(x, 2, 4), detail::argument(x, 3, 4));
      } else {
        static_assert(std::is_invocable_v<Callable&>, "a callable takes at most four tensors");
        return callable();
      }
    };
  }

  nn::Module* module_ = nullptr;
  Function function_;
  TensorTree sample_;
  std::string name_;
};

/// A callable whose forward and backward are replayed. Takes part in autograd as the original does:
/// gradients reach its arguments and every leaf that it refers to, a module's parameters or others.
/// A handle; copies name the same graphs. Use from one thread at a time.
///
///     GraphedCallable loss_fn = make_graphed_callables(
///         [&](const Tensor& y, const Tensor& t) { return mse_loss(y, t); },
///         TensorTree({sample_y, sample_t}));
///     loss_fn(model(x), t).tensor().backward();
///
/// Results and gradients are the caller's to keep, unless `static_results`. The backward of a call
/// must run before `slots` more calls have been made; else it throws GradError and changes nothing.
/// So does a backward with create_graph.
class GraphedCallable {
 public:
  /// @throws ValueError, ShapeError, DTypeError, DeviceError, GradError naming the path of the
  ///   argument, what was recorded and what came; StateError after `reset`, or naming a parameter
  ///   that changed; whatever recording throws, if the call has to record.
  TensorTree call(const TensorTree& arguments, Where where = Where::current());
  TensorTree operator()(Where where = Where::current());
  TensorTree operator()(const TensorTree& a, Where where = Where::current());
  TensorTree operator()(const TensorTree& a, const TensorTree& b, Where where = Where::current());
  TensorTree operator()(const TensorTree& a, const TensorTree& b, const TensorTree& c,
                        Where where = Where::current());
  TensorTree operator()(const TensorTree& a, const TensorTree& b, const TensorTree& c,
                        const TensorTree& d, Where where = Where::current());

  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] GraphedStats stats() const;
  [[nodiscard]] GraphPool pool() const;
  /// The inputs of the graph that the next call replays: arguments filled in there need no copy.
  [[nodiscard]] TensorTree static_inputs() const;
  /// The recorded forward; backward likewise, null if there is nothing to differentiate.
  [[nodiscard]] const Graph& forward_graph() const;
  [[nodiscard]] const Graph* backward_graph() const;
  /// Gives the memory back and a module its own forward. Calls of this handle throw from then on.
  void reset();

 private:
  friend std::vector<GraphedCallable> make_graphed_callables(std::vector<Graphable>, GraphedOptions,
                                                             Where);
  explicit GraphedCallable(std::shared_ptr<detail::Graphed> graphed);
  std::shared_ptr<detail::Graphed> graphed_;
};

/// Records forward and backward of each callable, in the given order and in the reverse one, into
/// graphs that share one pool. A module is graphed in place: calling it replays. Warm-up and
/// recording change nothing that the callables see; on failure all are as before.
/// @throws GradError  if a sample has a history, if a callable depends on one from before, or if an
///   input or parameter that requires a gradient gets none; StateError for a module that has hooks
///   or is graphed already (in it or below); CaptureError for what a replay cannot repeat, and
///   naming an argument that is written.
std::vector<GraphedCallable> make_graphed_callables(std::vector<Graphable> callables,
                                                    GraphedOptions options = {},
                                                    Where where = Where::current());
GraphedCallable make_graphed_callables(nn::Module& module, const Tensor& sample,
                                       GraphedOptions options = {}, Where where = Where::current());
GraphedCallable make_graphed_callables(Graphable::Function function, TensorTree sample,
                                       GraphedOptions options = {}, Where where = Where::current());
template <typename Callable>
requires(!std::is_convertible_v<Callable, Graphable::Function> &&
         !std::is_base_of_v<nn::Module, Callable>) GraphedCallable
    make_graphed_callables(Callable callable, TensorTree sample, GraphedOptions options = {},
                           Where where = Where::current()) {
  return make_graphed_callables({Graphable(std::move(callable), std::move(sample))},
                                std::move(options), where)
      .front();
}

/// Gives a graphed module its own forward and its memory back. @throws StateError if it is not
/// graphed.
void ungraph(nn::Module& module, Where where = Where::current());

}  // namespace capstan

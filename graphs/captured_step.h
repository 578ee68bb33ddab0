#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "graphs/graph.h"

namespace capstan {

struct StepOptions {
  std::string name = "step";
  /// Trial runs before the first capture of a signature; they leave no trace in parameters,
  /// buffers, optimiser state, gradients or generators. 0 is allowed.
  int warmup = 1;
  /// Graphs kept, one for each signature of the inputs; the least recently used goes first.
  int max_graphs = 8;
  /// Hand out the graph's own outputs, which the next call overwrites, instead of copies.
  bool static_outputs = false;
  /// Not global: other threads could not tell when a call records, so none may fail then.
  CaptureErrorMode error_mode = CaptureErrorMode::thread_local_;
};

struct StepStats {
  std::int64_t replays = 0;
  std::int64_t captures = 0;
  std::int64_t evictions = 0;
};

/// A whole training step (or any function of tensors), recorded at its first call and replayed from
/// then on. Inputs are copied into the graph's own; a new signature (shapes, dtypes, strides do not
/// matter) records another graph in the same pool, so the odd last batch of an epoch just works.
/// Results are the caller's to keep unless `static_outputs`.
///
///     CapturedStep step(device, [&](const Tensor& images, const Tensor& labels) {
///       optimizer.zero_grad();
///       Tensor loss = cross_entropy(model(images), labels);
///       loss.backward();
///       optimizer.step();
///       return loss;
///     });
///     for (const auto& [images, labels] : train) Tensor loss = step(images, labels);
///
/// Replay equals the eager run bit for bit, random numbers included, and leaves in `grad` of every
/// parameter what the eager run would. The function must not read device values on the host or keep
/// state on the host between calls; the first is refused while capturing with the operation's name
/// and line. What it sees of the host is that of the recorded call, except that the grad mode,
/// which gradients exist, and parameters frozen or moved (set_data) lead to a new recording. If
/// warm-up or capture fails, everything is as it was before the call, and the call may be repeated.
class CapturedStep {
 public:
  using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

  CapturedStep(Device device, Function function, StepOptions options = {});
  /// Accepts any callable of up to three tensors that returns a Tensor or nothing.
  template <typename Callable>
  requires(!std::is_convertible_v<Callable, Function>)
      CapturedStep(Device device, Callable callable, StepOptions options = {})
      : CapturedStep(device, wrap(std::move(callable)), std::move(options)) {}
  ~CapturedStep();
  CapturedStep(CapturedStep&&) noexcept;
  CapturedStep& operator=(CapturedStep&&) noexcept;

  /// Runs one step and returns its outputs, without history.
  /// @throws DeviceError if an input is on another device; GradError if one requires a gradient;
  ///   CaptureError if the function does what a replay cannot repeat, writes an input, or while the
  ///   current stream captures; whatever the function throws.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, Where where = Where::current());
  /// The first output; undefined if there is none.
  Tensor operator()(Where where = Where::current());
  Tensor operator()(const Tensor& a, Where where = Where::current());
  Tensor operator()(const Tensor& a, const Tensor& b, Where where = Where::current());
  Tensor operator()(const Tensor& a, const Tensor& b, const Tensor& c,
                    Where where = Where::current());

  [[nodiscard]] StepStats stats() const noexcept;
  [[nodiscard]] GraphPool pool() const noexcept;
  /// The graph of the last call. @throws StateError before the first.
  [[nodiscard]] const Graph& graph() const;
  /// The last graph's own inputs: filling these and passing them saves the copy.
  /// @throws StateError before the first call.
  [[nodiscard]] const std::vector<Tensor>& inputs() const;
  /// Drops all graphs and their memory.
  void reset();

 private:
  template <typename Callable>
  [[nodiscard]] static Function wrap(Callable callable) {
    return [callable = std::move(callable)](const std::vector<Tensor>& x) mutable {
      if constexpr (std::is_invocable_v<Callable&, const Tensor&>) {
        check_count(x.size(), 1);
        return call(callable, x[0]);
      } else if constexpr (std::is_invocable_v<Callable&, const Tensor&, const Tensor&>) {
        check_count(x.size(), 2);
        return call(callable, x[0], x[1]);
      } else if constexpr (std::is_invocable_v<Callable&, const Tensor&, const Tensor&,
                                               const Tensor&>) {
        check_count(x.size(), 3);
        return call(callable, x[0], x[1], x[2]);
      } else {
        static_assert(std::is_invocable_v<Callable&>, "a step takes at most three tensors");
        check_count(x.size(), 0);
        return call(callable);
      }
    };
  }
  static void check_count(std::size_t got, std::size_t taken);
  template <typename Callable, typename... Tensors>
  [[nodiscard]] static std::vector<Tensor> call(Callable& callable, const Tensors&... tensors) {
    if constexpr (std::is_void_v<std::invoke_result_t<Callable&, const Tensors&...>>) {
      callable(tensors...);
      return {};
    } else {
      return {callable(tensors...)};
    }
  }

  [[nodiscard]] Tensor first_of(std::span<const Tensor> inputs, const Where& where);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace capstan

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "framework/tensor/tensor.h"
#include "nn/state_dict.h"

namespace capstan::nn {

/// Base of everything with parameters. Derive, hold children as members, register them in the
/// constructor, write `forward`, and call the module like a function:
///
///     struct Net : nn::Module {
///       Net() {
///         register_module("fc1", fc1);
///         register_module("fc2", fc2);
///       }
///       Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))); }
///       nn::Linear fc1{784, 128};
///       nn::Linear fc2{128, 10};
///     };
///
/// Errors thrown inside name the path ("in net.fc1: linear: ..."). Not copyable. A module moves
/// only while it has no children that are registered by reference (Linear and Sequential move, Net
/// does not).
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  /// @throws StateError  if a child is registered by reference.
  Module(Module&& other);
  Module& operator=(Module&&) = delete;

  [[nodiscard]] virtual Tensor forward(const Tensor& x) = 0;
  /// Runs forward pre-hooks, `forward` (or what replaced it), forward hooks.
  Tensor operator()(const Tensor& x, Where where = Where::current());

  /// Own name: given by the parent, or by `set_name` for a root.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }

  /// Of this module and below, depth first: "fc1.weight". A shared tensor appears once.
  [[nodiscard]] NamedTensors named_parameters() const;
  [[nodiscard]] std::vector<Tensor> parameters() const;
  [[nodiscard]] NamedTensors named_buffers() const;
  [[nodiscard]] std::vector<Tensor> buffers() const;
  [[nodiscard]] std::vector<std::pair<std::string, Module*>> named_children() const;
  /// This module ("" as its path) and all below.
  [[nodiscard]] std::vector<std::pair<std::string, Module*>> named_modules();
  [[nodiscard]] std::int64_t parameter_count() const;

  /// Training mode of this module and all below; at first true.
  void train(bool training = true);
  void eval() { train(false); }
  [[nodiscard]] bool is_training() const noexcept { return training_; }

  /// Moves parameters and buffers to `device`; the Tensor handles stay the same. Gradients are
  /// dropped where the device changes. @throws CaptureError while capturing.
  void to(Device device, Where where = Where::current());
  /// Undefines gradients, or fills them with zeros.
  void zero_grad(bool set_to_none = true);
  void requires_grad_(bool value = true);

  /// Parameters and buffers by name, sharing memory with the module.
  [[nodiscard]] StateDict state_dict() const;
  /// Copies values in place, in any order, across devices. Everything is checked first: on an error
  /// nothing has changed. @throws ValueError listing missing and unexpected names (if `strict`);
  /// ShapeError, DTypeError naming the tensor.
  void load_state_dict(const StateDict& state, bool strict = true, Where where = Where::current());

  using ForwardPreHook = std::function<Tensor(Module&, const Tensor& input)>;
  using ForwardHook = std::function<Tensor(Module&, const Tensor& input, const Tensor& output)>;
  using BackwardHook = std::function<Tensor(Module&, const Tensor& grad_output)>;
  /// Hooks run in the order of registration; a defined result replaces the value. The backward hook
  /// sees the gradient of the module's output; the module must still live, and not have moved, when
  /// backward runs. @return a number for `remove_hook`.
  int register_forward_pre_hook(ForwardPreHook hook);
  int register_forward_hook(ForwardHook hook);
  int register_backward_hook(BackwardHook hook);
  void remove_hook(int id);
  [[nodiscard]] bool has_hooks() const noexcept;

  /// Calls run `replacement` in place of `forward`, with the hooks around it, until it is replaced
  /// by an empty one; graphing a module does this. A module whose forward is replaced cannot move.
  void replace_forward(std::function<Tensor(const Tensor& input)> replacement);
  [[nodiscard]] bool is_forward_replaced() const noexcept { return replacement_ != nullptr; }
  /// What runs in place of `forward`, or null.
  [[nodiscard]] std::shared_ptr<const std::function<Tensor(const Tensor&)>> forward_replacement()
      const noexcept {
    return replacement_;
  }

  /// Calls `visit` for this module and all below.
  void apply(const std::function<void(Module&)>& visit);

 protected:
  /// Makes `tensor` a parameter (a leaf that requires a gradient) and returns it.
  /// @throws ValueError  if the name is empty, has a dot, or is taken; GradError if `tensor` is the
  ///   result of a recorded operation.
  Tensor register_parameter(const std::string& name, const Tensor& tensor);
  Tensor register_buffer(const std::string& name, const Tensor& tensor);
  /// Names `child`, which is a member of this module, or lives as long.
  /// @throws ValueError  as above, or if `child` is this module or contains it.
  void register_module(const std::string& name, Module& child);
  void register_module(const std::string& name, std::shared_ptr<Module> child);

 private:
  struct Child {
    std::string name;
    Module* module;
    std::shared_ptr<Module> owner;  // null: registered by reference
  };
  using Seen = std::unordered_set<const void*>;  // modules and tensors
  void collect(NamedTensors Module::*list, const std::string& path, Seen& seen,
               NamedTensors& result) const;
  void collect_modules(const std::string& path, Seen& seen,
                       std::vector<std::pair<std::string, Module*>>& result);
  void check_name(const char* operation, const std::string& name) const;
  void add_child(const std::string& name, Module* child, std::shared_ptr<Module> owner);
  [[nodiscard]] std::string describe_self() const;
  [[nodiscard]] Tensor call_with_hooks(const Tensor& x);
  [[nodiscard]] Tensor run_forward(const Tensor& x) {
    if (replacement_ == nullptr) [[likely]]
      return forward(x);
    return run_replacement(x);
  }
  [[nodiscard]] Tensor run_replacement(const Tensor& x);

  std::string name_;
  bool training_ = true;
  NamedTensors parameters_;
  NamedTensors buffers_;
  std::vector<Child> children_;
  std::shared_ptr<const std::function<Tensor(const Tensor&)>> replacement_;
  int next_hook_ = 1;
  std::vector<std::pair<int, ForwardPreHook>> pre_hooks_;
  std::vector<std::pair<int, ForwardHook>> forward_hooks_;
  std::vector<std::pair<int, BackwardHook>> backward_hooks_;
};

/// Undefines the gradients of `tensors`, or fills those that exist with zeros.
void zero_gradients(const std::vector<Tensor>& tensors, bool set_to_none = true);

}  // namespace capstan::nn

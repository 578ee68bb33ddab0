#include "nn/module.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <typeinfo>

#include "autograd/grad_mode.h"
#include "framework/core/counters.h"
#include "framework/runtime/forbidden.h"

namespace capstan::nn {
namespace {

/// "capstan::nn::Linear" -> "Linear".
std::string type_name(const std::type_info& type) {
  const std::unique_ptr<char, void (*)(void*)> readable(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr), std::free);
  const std::string full = readable ? readable.get() : type.name();
  const std::size_t colon = full.rfind("::");
  return colon == std::string::npos ? full : full.substr(colon + 2);
}

std::string join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

std::vector<Tensor> without_names(const NamedTensors& named) {
  std::vector<Tensor> result;
  result.reserve(named.size());
  for (const auto& [name, tensor] : named) result.push_back(tensor);
  return result;
}

void clear_gradient(const Tensor& tensor, bool set_to_none) {
  if (set_to_none) {
    tensor.set_grad(Tensor());
    return;
  }
  const Tensor grad = tensor.grad();
  if (!grad.defined()) return;
  // After create_graph the gradient has a history, which must not grow through the clearing.
  if (grad.requires_grad()) tensor.set_grad(grad.detach());
  const NoGradGuard no_grad;
  tensor.grad().zero_();
}

}  // namespace

Module::Module(Module&& other) {
  CAPSTAN_CHECK(!other.is_forward_replaced(), StateError, "module: ", other.describe_self(),
                " cannot move, since its forward is replaced (by a graph); ungraph it first");
  for (const Child& child : other.children_) {
    CAPSTAN_CHECK(child.owner != nullptr, StateError, "module: ", other.describe_self(),
                  " cannot move, since its child \"", child.name,
                  "\" is registered by reference; hold it in a std::shared_ptr");
  }
  name_ = std::move(other.name_);
  training_ = other.training_;
  parameters_ = std::move(other.parameters_);
  buffers_ = std::move(other.buffers_);
  children_ = std::move(other.children_);
  next_hook_ = other.next_hook_;
  pre_hooks_ = std::move(other.pre_hooks_);
  forward_hooks_ = std::move(other.forward_hooks_);
  backward_hooks_ = std::move(other.backward_hooks_);
}

Tensor Module::operator()(const Tensor& x, Where where) {
  const CallSite site(where);
  const ModuleScope scope(name_);
  if (has_hooks()) [[unlikely]]
    return call_with_hooks(x);
  return run_forward(x);
}

void Module::replace_forward(std::function<Tensor(const Tensor&)> replacement) {
  replacement_ =
      replacement == nullptr
          ? nullptr
          : std::make_shared<const std::function<Tensor(const Tensor&)>>(std::move(replacement));
}

// Held meanwhile: it may be replaced from within.
Tensor Module::run_replacement(const Tensor& x) {
  const auto held = replacement_;
  return (*held)(x);
}

std::string Module::describe_self() const {
  const std::string type = type_name(typeid(*this));
  return name_.empty() ? type : type + " \"" + name_ + "\"";
}

void Module::check_name(const char* operation, const std::string& name) const {
  CAPSTAN_CHECK(!name.empty(), ValueError, operation, ": ", describe_self(), " got an empty name");
  CAPSTAN_CHECK(name.find('.') == std::string::npos, ValueError, operation, ": ", describe_self(),
                " got the name \"", name, "\"; a dot separates modules, leave it out");
  const auto is_taken = [&name](const auto& list) {
    for (const auto& entry : list) {
      if (entry.first == name) return true;
    }
    return false;
  };
  bool taken = is_taken(parameters_) || is_taken(buffers_);
  for (const Child& child : children_) taken = taken || child.name == name;
  CAPSTAN_CHECK(!taken, ValueError, operation, ": ", describe_self(), " already has \"", name,
                "\"; choose another name");
}

Tensor Module::register_parameter(const std::string& name, const Tensor& tensor) {
  check_name("register_parameter", name);
  CAPSTAN_CHECK(tensor.defined(), ValueError, "register_parameter: ", describe_self(), " got \"",
                name, "\" undefined; leave it unregistered");
  tensor.set_requires_grad();
  parameters_.emplace_back(name, tensor);
  capstan::detail::count(counters().module_changes);
  return tensor;
}

Tensor Module::register_buffer(const std::string& name, const Tensor& tensor) {
  check_name("register_buffer", name);
  CAPSTAN_CHECK(tensor.defined(), ValueError, "register_buffer: ", describe_self(), " got \"", name,
                "\" undefined; leave it unregistered");
  buffers_.emplace_back(name, tensor);
  capstan::detail::count(counters().module_changes);
  return tensor;
}

void Module::register_module(const std::string& name, Module& child) {
  add_child(name, &child, nullptr);
}

void Module::register_module(const std::string& name, std::shared_ptr<Module> child) {
  Module* const module = child.get();
  add_child(name, module, std::move(child));
}

void Module::add_child(const std::string& name, Module* child, std::shared_ptr<Module> owner) {
  check_name("register_module", name);
  CAPSTAN_CHECK(child != nullptr, ValueError, "register_module: ", describe_self(), " got \"", name,
                "\" as a null pointer");
  for (const auto& [path, module] : child->named_modules()) {
    CAPSTAN_CHECK(module != this, ValueError, "register_module: ", describe_self(),
                  " would contain itself as \"", name, "\"");
  }
  children_.push_back({name, child, std::move(owner)});
  child->name_ = name;
  capstan::detail::count(counters().module_changes);
}

void Module::collect(NamedTensors Module::*list, const std::string& path, Seen& seen,
                     NamedTensors& result) const {
  if (!seen.insert(this).second) return;
  for (const auto& [name, tensor] : this->*list) {
    if (seen.insert(tensor.impl().get()).second) result.emplace_back(join(path, name), tensor);
  }
  for (const Child& child : children_) {
    child.module->collect(list, join(path, child.name), seen, result);
  }
}

void Module::collect_modules(const std::string& path, Seen& seen,
                             std::vector<std::pair<std::string, Module*>>& result) {
  if (!seen.insert(this).second) return;
  result.emplace_back(path, this);
  for (const Child& child : children_) {
    child.module->collect_modules(join(path, child.name), seen, result);
  }
}

NamedTensors Module::named_parameters() const {
  NamedTensors result;
  Seen seen;
  collect(&Module::parameters_, "", seen, result);
  return result;
}

NamedTensors Module::named_buffers() const {
  NamedTensors result;
  Seen seen;
  collect(&Module::buffers_, "", seen, result);
  return result;
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> result;
  Seen seen;
  collect_modules("", seen, result);
  return result;
}

std::vector<std::pair<std::string, Module*>> Module::named_children() const {
  std::vector<std::pair<std::string, Module*>> result;
  for (const Child& child : children_) result.emplace_back(child.name, child.module);
  return result;
}

std::vector<Tensor> Module::parameters() const { return without_names(named_parameters()); }

std::vector<Tensor> Module::buffers() const { return without_names(named_buffers()); }

std::int64_t Module::parameter_count() const {
  std::int64_t count = 0;
  for (const Tensor& parameter : parameters()) count += parameter.numel();
  return count;
}

void Module::train(bool training) {
  if (training_ != training) capstan::detail::count(counters().module_changes);
  training_ = training;
  for (const Child& child : children_) child.module->train(training);
}

void Module::to(Device device, Where where) {
  const CallSite site(where);
  const NoGradGuard no_grad;
  std::vector<Tensor> tensors = parameters();
  for (Tensor& buffer : buffers()) tensors.push_back(std::move(buffer));

  refuse_while_capturing(device, Forbidden::module_to);
  for (const Tensor& tensor : tensors) {
    refuse_while_capturing(tensor.device(), Forbidden::module_to);
  }

  // All copies first: where one fails, for want of memory say, the module is as it was.
  std::vector<Tensor> moved;
  moved.reserve(tensors.size());
  for (const Tensor& tensor : tensors) moved.push_back(tensor.detach().to(device));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].device() == device) continue;
    tensors[i].set_grad(Tensor());
    tensors[i].set_data(moved[i]);
  }
}

void Module::zero_grad(bool set_to_none) { zero_gradients(parameters(), set_to_none); }

void Module::requires_grad_(bool value) {
  for (const Tensor& parameter : parameters()) parameter.set_requires_grad(value);
}

StateDict Module::state_dict() const {
  StateDict state;
  for (const auto& [name, tensor] : named_parameters()) state.emplace_back(name, tensor.detach());
  for (const auto& [name, tensor] : named_buffers()) state.emplace_back(name, tensor.detach());
  return state;
}

void Module::load_state_dict(const StateDict& state, bool strict, Where where) {
  const CallSite site(where);
  const ModuleScope scope(name_);
  copy_state("load_state_dict", state_dict(), state, strict);
}

void Module::apply(const std::function<void(Module&)>& visit) {
  for (const auto& [path, module] : named_modules()) visit(*module);
}

void zero_gradients(const std::vector<Tensor>& tensors, bool set_to_none) {
  for (const Tensor& tensor : tensors) clear_gradient(tensor, set_to_none);
}

}  // namespace capstan::nn

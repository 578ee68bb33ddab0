#include <algorithm>

#include "autograd/grad_mode.h"
#include "framework/core/counters.h"
#include "nn/module.h"

namespace capstan::nn {

int Module::register_forward_pre_hook(ForwardPreHook hook) {
  pre_hooks_.emplace_back(next_hook_, std::move(hook));
  capstan::detail::count(counters().module_changes);
  return next_hook_++;
}

int Module::register_forward_hook(ForwardHook hook) {
  forward_hooks_.emplace_back(next_hook_, std::move(hook));
  capstan::detail::count(counters().module_changes);
  return next_hook_++;
}

int Module::register_backward_hook(BackwardHook hook) {
  backward_hooks_.emplace_back(next_hook_, std::move(hook));
  capstan::detail::count(counters().module_changes);
  return next_hook_++;
}

void Module::remove_hook(int id) {
  const auto has_id = [id](const auto& entry) { return entry.first == id; };
  std::erase_if(pre_hooks_, has_id);
  std::erase_if(forward_hooks_, has_id);
  std::erase_if(backward_hooks_, has_id);
}

bool Module::has_hooks() const noexcept {
  return !pre_hooks_.empty() || !forward_hooks_.empty() || !backward_hooks_.empty();
}

// The lists are copied, since a hook may remove itself or add others.
Tensor Module::call_with_hooks(const Tensor& x) {
  Tensor input = x;
  for (const auto& [id, hook] : std::vector(pre_hooks_)) {
    if (Tensor replaced = hook(*this, input); replaced.defined()) input = std::move(replaced);
  }
  Tensor output = run_forward(input);
  for (const auto& [id, hook] : std::vector(forward_hooks_)) {
    if (Tensor replaced = hook(*this, input, output); replaced.defined()) {
      output = std::move(replaced);
    }
  }
  if (backward_hooks_.empty() || !grad_enabled() || !output.requires_grad()) return output;

  // A module may return its input, or a parameter. A view of it belongs to this call alone, so the
  // hook sees what flows through this module only, and goes with this call's graph.
  output = output.expand(output.shape());
  output.register_hook([this, hooks = backward_hooks_](const Tensor& grad) {
    Tensor result;
    for (const auto& [id, hook] : hooks) {
      Tensor replaced = hook(*this, result.defined() ? result : grad);
      if (replaced.defined()) result = std::move(replaced);
    }
    return result;
  });
  return output;
}

}  // namespace capstan::nn

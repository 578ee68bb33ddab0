#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"

namespace capstan {

struct GradCheckOptions {
  double eps = 1e-6;  ///< step of the central difference
  double atol = 1e-5;
  double rtol = 1e-3;
};

/// Whether the gradients agreed, and if not, where: input, element, both numbers.
struct GradCheckResult {
  bool ok = true;
  std::string message;
  explicit operator bool() const noexcept { return ok; }
};

/// Compares gradients from backward with central differences, for every element of every input that
/// requires a gradient, through a fixed pseudo-random projection of every output. Inputs should be
/// float64 leaves. @throws ValueError if no input requires a gradient or one is not float64.
[[nodiscard]] GradCheckResult grad_check(
    const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& function,
    const std::vector<Tensor>& inputs, GradCheckOptions options = {},
    Where where = Where::current());
/// The same for gradients of gradients.
[[nodiscard]] GradCheckResult grad_grad_check(
    const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& function,
    const std::vector<Tensor>& inputs, GradCheckOptions options = {},
    Where where = Where::current());

}  // namespace capstan

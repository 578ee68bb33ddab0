#include "autograd/grad_check.h"

#include <cmath>
#include <iomanip>
#include <sstream>

#include "autograd/engine.h"
#include "framework/runtime/forbidden.h"
#include "framework/tensor/factory.h"
#include "ops/elementwise.h"

namespace capstan {
namespace {

using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
using Values = std::vector<double>;

/// Fixed values in +-[0.5, 1.5): no element of an output is hidden, and equal errors do not cancel.
Values projection(std::size_t output, std::int64_t count) {
  Values values;
  values.reserve(static_cast<std::size_t>(count));
  std::uint64_t state = 0x9E3779B97F4A7C15u * (output + 1);
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double size = 0.5 + static_cast<double>(state >> 12) * 0x1p-52;
    values.push_back((state >> 11 & 1) != 0 ? size : -size);
  }
  return values;
}

/// The number whose gradient is checked.
double projected(const Function& function, const std::vector<Tensor>& inputs) {
  double total = 0.0;
  const std::vector<Tensor> outputs = function(inputs);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (!is_floating(outputs[k].dtype())) continue;
    const Values values = outputs[k].to_vector<double>();
    const Values weights = projection(k, outputs[k].numel());
    for (std::size_t i = 0; i < values.size(); ++i) total += weights[i] * values[i];
  }
  return total;
}

/// Overwrites the elements of a leaf under the eyes of nobody, and puts them back.
class Perturbation {
 public:
  explicit Perturbation(const Tensor& tensor)
      : tensor_(tensor),
        values_(tensor.to_vector<double>()),
        version_(tensor.storage()->version()) {}
  ~Perturbation() {
    try {
      write(values_);
      tensor_.storage()->set_version(version_);
    } catch (const Error&) {
      // The device refuses everything by now, which the check reports itself.
    }
  }
  Perturbation(const Perturbation&) = delete;
  Perturbation& operator=(const Perturbation&) = delete;

  void shift(std::size_t element, double by) const {
    Values values = values_;
    values[element] += by;
    write(values);
  }

 private:
  void write(const Values& values) const {
    ops::copy(tensor_, Tensor::from_vector(tensor_.shape(), values, tensor_.device()));
  }

  const Tensor tensor_;
  const Values values_;
  const std::int64_t version_;
};

/// Gradients from backward, one per input; undefined where there is none.
std::vector<Tensor> analytic_gradients(const Function& function,
                                       const std::vector<Tensor>& inputs) {
  const std::vector<Tensor> outputs = function(inputs);
  std::vector<Tensor> roots;
  std::vector<Tensor> weights;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (!outputs[k].requires_grad()) continue;
    const Tensor weight = Tensor::from_vector(outputs[k].shape(), projection(k, outputs[k].numel()),
                                              outputs[k].device());
    roots.push_back(outputs[k]);
    weights.push_back(ops::cast(weight, outputs[k].dtype()));
  }
  if (roots.empty()) return std::vector<Tensor>(inputs.size());
  return grad(roots, inputs, weights, {.allow_unused = true});
}

/// `names` says what to call each input.
GradCheckResult check(const Function& function, const std::vector<Tensor>& inputs,
                      const std::vector<std::string>& names, const GradCheckOptions& options) {
  const std::vector<Tensor> gradients = analytic_gradients(function, inputs);
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (!inputs[k].requires_grad()) continue;
    const auto count = static_cast<std::size_t>(inputs[k].numel());
    const Values analytic =
        gradients[k].defined() ? gradients[k].to_vector<double>() : Values(count, 0.0);
    const Perturbation perturbation(inputs[k]);
    for (std::size_t i = 0; i < count; ++i) {
      perturbation.shift(i, options.eps);
      const double above = projected(function, inputs);
      perturbation.shift(i, -options.eps);
      const double below = projected(function, inputs);
      const double numeric = (above - below) / (2.0 * options.eps);
      const double bound = options.atol + options.rtol * std::abs(numeric);
      if (std::abs(numeric - analytic[i]) <= bound) continue;  // false for NaN
      std::ostringstream text;
      text << std::setprecision(10) << "grad_check: " << names[k] << ", element " << i
           << ": numeric " << numeric << ", analytic " << analytic[i]
           << (gradients[k].defined() ? "" : " (no gradient arrived)");
      return {false, std::move(text).str()};
    }
  }
  return {};
}

void check_inputs(const char* operation, Forbidden call, const std::vector<Tensor>& inputs) {
  bool any = false;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (!inputs[k].requires_grad()) continue;
    any = true;
    refuse_while_capturing(inputs[k].device(), call);
    CAPSTAN_CHECK(inputs[k].dtype() == DType::float64, ValueError, operation, ": input ", k, " is ",
                  inputs[k].dtype(), "; differences need float64");
  }
  CAPSTAN_CHECK(any, ValueError, operation, ": no input requires a gradient");
}

std::vector<std::string> input_names(std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t k = 0; k < count; ++k) names.push_back(detail::concat("input ", k));
  return names;
}

}  // namespace

GradCheckResult grad_check(const Function& function, const std::vector<Tensor>& inputs,
                           GradCheckOptions options, Where where) {
  const CallSite site(where);
  check_inputs("grad_check", Forbidden::grad_check, inputs);
  return check(function, inputs, input_names(inputs.size()), options);
}

GradCheckResult grad_grad_check(const Function& function, const std::vector<Tensor>& inputs,
                                GradCheckOptions options, Where where) {
  const CallSite site(where);
  check_inputs("grad_grad_check", Forbidden::grad_grad_check, inputs);

  // First-order gradients depend on the inputs and, linearly, on the gradients of the outputs.
  std::vector<Tensor> all = inputs;
  std::vector<std::string> names = input_names(inputs.size());
  const std::vector<Tensor> outputs = function(inputs);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (!outputs[k].requires_grad()) continue;
    const Tensor weight = Tensor::from_vector(outputs[k].shape(), projection(k, outputs[k].numel()),
                                              outputs[k].device());
    weight.set_requires_grad();
    all.push_back(weight);
    names.push_back(detail::concat("gradient of output ", k));
  }
  const auto count = static_cast<std::ptrdiff_t>(inputs.size());

  const Function first_order = [&function, count](const std::vector<Tensor>& arguments) {
    const std::vector<Tensor> values(arguments.begin(), arguments.begin() + count);
    const std::vector<Tensor> weights(arguments.begin() + count, arguments.end());
    std::vector<Tensor> roots;
    for (const Tensor& output : function(values)) {
      if (output.requires_grad()) roots.push_back(output);
    }
    std::vector<Tensor> gradients;
    if (roots.empty()) return gradients;
    std::vector<Tensor> wanted;
    for (const Tensor& value : values) {
      if (value.requires_grad()) wanted.push_back(value);
    }
    for (const Tensor& gradient :
         grad(roots, wanted, weights, {.create_graph = true, .allow_unused = true})) {
      if (gradient.defined()) gradients.push_back(gradient);
    }
    return gradients;
  };
  return check(first_order, all, names, options);
}

}  // namespace capstan

#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

// The published update rules for one number, in plain double arithmetic, to compare optimisers
// with.
namespace capstan::testing {

struct SgdReference {
  double learning_rate;
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
  double velocity = 0.0;

  void step(double& parameter, double gradient) {
    const double direction = gradient + weight_decay * parameter;
    velocity = momentum * velocity + direction;
    parameter -= learning_rate * (nesterov ? direction + momentum * velocity : velocity);
  }
};

/// Algorithm 1 of Kingma and Ba, with bias-corrected moments, and algorithm 2 of Loshchilov and
/// Hutter if `decoupled`.
struct AdamReference {
  double learning_rate;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool decoupled = false;
  int steps = 0;
  double first = 0.0;
  double second = 0.0;

  void step(double& parameter, double gradient) {
    ++steps;
    if (decoupled) parameter -= learning_rate * weight_decay * parameter;
    const double g = decoupled ? gradient : gradient + weight_decay * parameter;
    first = beta1 * first + (1.0 - beta1) * g;
    second = beta2 * second + (1.0 - beta2) * g * g;
    const double corrected_first = first / (1.0 - std::pow(beta1, steps));
    const double corrected_second = second / (1.0 - std::pow(beta2, steps));
    parameter -= learning_rate * corrected_first / (std::sqrt(corrected_second) + eps);
  }
};

/// A gradient that changes with step, parameter and element, and has both signs.
inline double reference_gradient(std::size_t step, std::size_t parameter, std::size_t element) {
  return std::sin(1.0 + 0.7 * static_cast<double>(step) + 1.3 * static_cast<double>(parameter) +
                  0.4 * static_cast<double>(element));
}

}  // namespace capstan::testing

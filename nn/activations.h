#pragma once

#include <memory>

#include "framework/random/generator.h"
#include "nn/module.h"

// Modules without parameters around the functions of the same name.
namespace capstan::nn {

class ReLU : public Module {
 public:
  [[nodiscard]] Tensor forward(const Tensor& x) override;
};
class GELU : public Module {
 public:
  [[nodiscard]] Tensor forward(const Tensor& x) override;
};
class Tanh : public Module {
 public:
  [[nodiscard]] Tensor forward(const Tensor& x) override;
};
class Sigmoid : public Module {
 public:
  [[nodiscard]] Tensor forward(const Tensor& x) override;
};
class Softmax : public Module {
 public:
  explicit Softmax(int axis = -1) : axis_(axis) {}
  [[nodiscard]] Tensor forward(const Tensor& x) override;

 private:
  int axis_;
};

/// Drops elements with probability p in training, and passes its input on in evaluation.
class Dropout : public Module {
 public:
  /// @throws ValueError unless 0 <= p <= 1.
  explicit Dropout(double p = 0.5, const Generator* generator = nullptr,
                   Where where = Where::current());
  [[nodiscard]] Tensor forward(const Tensor& x) override;

 private:
  double p_;
  std::shared_ptr<Generator> generator_;  // null: the default one of the input's device
};

/// [N, ...] to [N, product of the rest], by default.
class Flatten : public Module {
 public:
  explicit Flatten(int first = 1, int last = -1) : first_(first), last_(last) {}
  [[nodiscard]] Tensor forward(const Tensor& x) override;

 private:
  int first_;
  int last_;
};

}  // namespace capstan::nn

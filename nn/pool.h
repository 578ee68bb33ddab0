#pragma once

#include "autograd/pool.h"
#include "nn/module.h"

// Modules without parameters around the functions of autograd/pool.h, which check the options.
namespace capstan::nn {

class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(Size2d kernel, MaxPoolOptions options = {})
      : kernel_(kernel), options_(options) {}
  [[nodiscard]] Tensor forward(const Tensor& x) override {
    return max_pool2d(x, kernel_, options_);
  }

 private:
  Size2d kernel_;
  MaxPoolOptions options_;
};

class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(Size2d kernel, AvgPoolOptions options = {})
      : kernel_(kernel), options_(options) {}
  [[nodiscard]] Tensor forward(const Tensor& x) override {
    return avg_pool2d(x, kernel_, options_);
  }

 private:
  Size2d kernel_;
  AvgPoolOptions options_;
};

class AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(Size2d output) : output_(output) {}
  [[nodiscard]] Tensor forward(const Tensor& x) override { return adaptive_avg_pool2d(x, output_); }

 private:
  Size2d output_;
};

}  // namespace capstan::nn

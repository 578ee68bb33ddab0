#include "nn/container.h"

namespace capstan::nn {

void Sequential::push_back(std::shared_ptr<Module> module) {
  register_module(std::to_string(size()), module);
  modules_.push_back(std::move(module));
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (const std::shared_ptr<Module>& module : modules_) y = (*module)(y);
  return y;
}

Module& Sequential::operator[](std::int64_t index) const {
  CAPSTAN_CHECK(index >= 0 && index < size(), IndexError, "sequential: index ", index,
                " is out of range [0, ", size(), ")");
  return *modules_[static_cast<std::size_t>(index)];
}

}  // namespace capstan::nn

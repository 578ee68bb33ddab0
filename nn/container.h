#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "nn/module.h"

namespace capstan::nn {

/// Calls its modules one after the other; they are named "0", "1", ...
///
///     nn::Sequential net(nn::Linear(784, 128), nn::ReLU(), nn::Linear(128, 10));
class Sequential : public Module {
 public:
  Sequential() = default;
  template <typename... Modules>
  requires(sizeof...(Modules) > 0 && (std::is_base_of_v<Module, Modules> && ...) &&
           !(sizeof...(Modules) == 1 && (std::is_same_v<Modules, Sequential> &&
                                         ...))) explicit Sequential(Modules&&... modules) {
    (push_back(std::forward<Modules>(modules)), ...);
  }
  Sequential(Sequential&&) = default;

  template <typename Derived>
  requires std::is_base_of_v<Module, Derived>
  void push_back(Derived&& module) {
    push_back(std::static_pointer_cast<Module>(
        std::make_shared<std::remove_cvref_t<Derived>>(std::forward<Derived>(module))));
  }
  void push_back(std::shared_ptr<Module> module);

  [[nodiscard]] Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::int64_t size() const noexcept {
    return static_cast<std::int64_t>(modules_.size());
  }
  /// @throws IndexError.
  [[nodiscard]] Module& operator[](std::int64_t index) const;

 private:
  std::vector<std::shared_ptr<Module>> modules_;
};

}  // namespace capstan::nn

#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "framework/tensor/tensor.h"

namespace capstan {

/// A tensor, nothing, or a list or map of such: arguments and results of callables. A tensor turns
/// into a tree by itself, and a tree that is a tensor back into one:
///
///     TensorTree batch = TensorTree::map({{"x", x}, {"masks", TensorTree::list({m1, m2})}});
///     Tensor m2 = batch["masks"][1];
class TensorTree {
 public:
  using List = std::vector<TensorTree>;
  using Map = std::map<std::string, TensorTree>;

  /// Nothing, an empty place.
  TensorTree() noexcept = default;
  /// An undefined tensor is nothing.
  TensorTree(Tensor tensor);
  TensorTree(const std::vector<Tensor>& tensors);
  [[nodiscard]] static TensorTree list(List items);
  [[nodiscard]] static TensorTree map(Map items);

  [[nodiscard]] bool is_nothing() const noexcept { return value_.index() == 0; }
  [[nodiscard]] bool is_tensor() const noexcept { return value_.index() == 1; }
  [[nodiscard]] bool is_list() const noexcept { return value_.index() == 2; }
  [[nodiscard]] bool is_map() const noexcept { return value_.index() == 3; }

  /// @throws StateError unless this is a tensor, or nothing, which gives an undefined one.
  [[nodiscard]] Tensor tensor(Where where = Where::current()) const;
  operator Tensor() const { return tensor(); }
  /// Items of a list or a map; 0 for others.
  [[nodiscard]] std::size_t size() const noexcept;
  /// @throws StateError unless this is a list; IndexError.
  [[nodiscard]] const TensorTree& operator[](std::size_t index) const;
  /// @throws StateError unless this is a map; ValueError naming the keys that it has.
  [[nodiscard]] const TensorTree& operator[](const std::string& key) const;
  [[nodiscard]] bool contains(const std::string& key) const;

  /// "nothing", "a tensor", "a list of 2", "a map of \"x\", \"y\"": for messages.
  [[nodiscard]] std::string kind() const;
  /// All tensors, depth first, maps in the order of their keys.
  [[nodiscard]] std::vector<Tensor> flatten() const;
  /// Calls `visit` with each tensor and its path, such as `[0]["mask"]`, in the order of `flatten`.
  void for_each(const std::function<void(const std::string& path, const Tensor&)>& visit) const;
  /// A tree of this structure with other tensors, in the order of `flatten`; an undefined one
  /// leaves its place empty.
  [[nodiscard]] TensorTree with(const std::vector<Tensor>& tensors) const;
  /// Empty if `other` has the same structure, else where and how it differs: `[1]: expected a
  /// tensor, got a list of 2`.
  [[nodiscard]] std::string structural_difference(const TensorTree& other) const;

 private:
  void visit_at(const std::string& path,
                const std::function<void(const std::string&, const Tensor&)>& visit) const;
  [[nodiscard]] TensorTree rebuild(const std::vector<Tensor>& tensors, std::size_t& next) const;
  [[nodiscard]] std::string difference_at(const std::string& path, const TensorTree& other) const;

  std::variant<std::monostate, Tensor, List, Map> value_;
};

}  // namespace capstan

#include "graphs/tensor_tree.h"

#include <utility>

#include "framework/core/error.h"

namespace capstan {
namespace {

std::string at_key(const std::string& path, const std::string& key) {
  return path + "[\"" + key + "\"]";
}

std::string at_index(const std::string& path, std::size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

std::string keys_of(const TensorTree::Map& map) {
  std::string keys;
  for (const auto& [key, item] : map) keys += (keys.empty() ? "" : ", ") + key;
  return keys;
}

}  // namespace

TensorTree::TensorTree(Tensor tensor) {
  if (tensor.defined()) value_ = std::move(tensor);
}

TensorTree::TensorTree(const std::vector<Tensor>& tensors) {
  value_ = List(tensors.begin(), tensors.end());
}

TensorTree TensorTree::list(List items) {
  TensorTree tree;
  tree.value_ = std::move(items);
  return tree;
}

TensorTree TensorTree::map(Map items) {
  TensorTree tree;
  tree.value_ = std::move(items);
  return tree;
}

Tensor TensorTree::tensor(Where where) const {
  const CallSite site(where);
  CAPSTAN_CHECK(is_tensor() || is_nothing(), StateError, "tensor_tree: expected a tensor, got ",
                kind(), "; take one of its items");
  return is_tensor() ? std::get<Tensor>(value_) : Tensor();
}

std::size_t TensorTree::size() const noexcept {
  if (const auto* items = std::get_if<List>(&value_)) return items->size();
  if (const auto* items = std::get_if<Map>(&value_)) return items->size();
  return 0;
}

const TensorTree& TensorTree::operator[](std::size_t index) const {
  const auto* items = std::get_if<List>(&value_);
  CAPSTAN_CHECK(items != nullptr, StateError, "tensor_tree: item ", index, " needs a list, got ",
                kind());
  CAPSTAN_CHECK(index < items->size(), IndexError, "tensor_tree: item ", index, " of a list of ",
                items->size());
  return (*items)[index];
}

const TensorTree& TensorTree::operator[](const std::string& key) const {
  const auto* items = std::get_if<Map>(&value_);
  CAPSTAN_CHECK(items != nullptr, StateError, "tensor_tree: item \"", key, "\" needs a map, got ",
                kind());
  const auto found = items->find(key);
  CAPSTAN_CHECK(found != items->end(), ValueError, "tensor_tree: there is no \"", key,
                "\"; there are: ", keys_of(*items));
  return found->second;
}

bool TensorTree::contains(const std::string& key) const {
  const auto* items = std::get_if<Map>(&value_);
  return items != nullptr && items->contains(key);
}

std::vector<Tensor> TensorTree::flatten() const {
  std::vector<Tensor> tensors;
  if (is_tensor()) return {std::get<Tensor>(value_)};
  for_each([&](const std::string&, const Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

void TensorTree::for_each(
    const std::function<void(const std::string&, const Tensor&)>& visit) const {
  visit_at("", visit);
}

void TensorTree::visit_at(
    const std::string& path,
    const std::function<void(const std::string&, const Tensor&)>& visit) const {
  if (is_tensor()) {
    visit(path, std::get<Tensor>(value_));
  } else if (const auto* items = std::get_if<List>(&value_)) {
    for (std::size_t i = 0; i < items->size(); ++i) (*items)[i].visit_at(at_index(path, i), visit);
  } else if (const auto* named = std::get_if<Map>(&value_)) {
    for (const auto& [key, item] : *named) item.visit_at(at_key(path, key), visit);
  }
}

TensorTree TensorTree::with(const std::vector<Tensor>& tensors) const {
  std::size_t next = 0;
  TensorTree tree = rebuild(tensors, next);
  CAPSTAN_CHECK(next == tensors.size(), ValueError, "tensor_tree: the tree has ", next,
                " tensors, got ", tensors.size());
  return tree;
}

TensorTree TensorTree::rebuild(const std::vector<Tensor>& tensors, std::size_t& next) const {
  if (is_tensor()) {
    CAPSTAN_CHECK(next < tensors.size(), ValueError, "tensor_tree: the tree has more than ",
                  tensors.size(), " tensors");
    return tensors[next++];
  }
  if (const auto* items = std::get_if<List>(&value_)) {
    List rebuilt;
    for (const TensorTree& item : *items) rebuilt.push_back(item.rebuild(tensors, next));
    return list(std::move(rebuilt));
  }
  if (const auto* named = std::get_if<Map>(&value_)) {
    Map rebuilt;
    for (const auto& [key, item] : *named) rebuilt.emplace(key, item.rebuild(tensors, next));
    return map(std::move(rebuilt));
  }
  return {};
}

std::string TensorTree::kind() const {
  if (is_nothing()) return "nothing";
  if (is_tensor()) return "a tensor";
  if (is_list()) return "a list of " + std::to_string(size());
  return "a map of " + keys_of(std::get<Map>(value_));
}

std::string TensorTree::structural_difference(const TensorTree& other) const {
  return difference_at("", other);
}

std::string TensorTree::difference_at(const std::string& path, const TensorTree& other) const {
  const auto differs = [&] {
    return (path.empty() ? "" : path + ": ") + "expected " + kind() + ", got " + other.kind();
  };
  if (value_.index() != other.value_.index() || size() != other.size()) return differs();
  if (const auto* items = std::get_if<List>(&value_)) {
    for (std::size_t i = 0; i < items->size(); ++i) {
      std::string found = (*items)[i].difference_at(at_index(path, i), other[i]);
      if (!found.empty()) return found;
    }
  } else if (const auto* named = std::get_if<Map>(&value_)) {
    for (const auto& [key, item] : *named) {
      if (!other.contains(key)) return differs();
      std::string found = item.difference_at(at_key(path, key), other[key]);
      if (!found.empty()) return found;
    }
  }
  return {};
}

}  // namespace capstan

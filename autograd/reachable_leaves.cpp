#include <algorithm>
#include <unordered_set>

#include "autograd/engine_edges.h"

namespace capstan::autograd {

std::vector<Ref<LeafNode>> reachable_leaves(const std::vector<Tensor>& outputs,
                                            std::uint64_t oldest_operation, const char* operation) {
  std::unordered_set<const Node*> seen;
  std::vector<Node*> pending;
  std::vector<Ref<LeafNode>> leaves;
  const auto reach = [&](const Edge& edge) {
    Node* const node = edge.node.get();
    if (node == nullptr || !seen.insert(node).second) return;
    if (node->is_leaf()) {
      leaves.emplace_back(static_cast<LeafNode*>(node));
      return;
    }
    CAPSTAN_CHECK(node->sequence >= oldest_operation, GradError, operation, ": ", node->name,
                  " (recorded at ", node->where.file_name(), ":", node->where.line(),
                  ") was computed before; pass its result as an input, or detach it");
    pending.push_back(node);
  };
  for (const Tensor& output : outputs) {
    if (requires_grad(output)) reach(edge_of(output));
  }
  while (!pending.empty()) {
    Node& node = *pending.back();
    pending.pop_back();
    for (const Edge& edge : node.edges()) reach(edge);
  }
  std::sort(leaves.begin(), leaves.end(),
            [](const auto& a, const auto& b) { return a->sequence < b->sequence; });
  return leaves;
}

}  // namespace capstan::autograd

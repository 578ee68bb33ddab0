#pragma once

#include <cstdint>
#include <vector>

#include "autograd/engine.h"
#include "autograd/node.h"

namespace capstan::autograd {

/// `grad` with respect to edges (see `edge_of`) instead of tensors: for nodes that stand for a
/// whole stretch of a program. No `grad` is touched, hooks of the targets run, except those of
/// leaves if `leaf_hooks` is false: where the gradient then goes on to the leaf, they would run
/// twice. An edge without a node counts as unused. The caller's line is the current call site.
/// @throws GradError  as `grad`, naming the position of an unused target.
[[nodiscard]] std::vector<Tensor> grad_edges(const std::vector<Tensor>& outputs,
                                             const std::vector<Edge>& targets,
                                             const std::vector<Tensor>& grad_outputs,
                                             GradOptions options, bool leaf_hooks = true);

/// The leaves that gradients of `outputs` would reach, each once, oldest first. Outputs that
/// require no gradient are skipped.
/// @throws GradError  naming `operation`, and one on the way that is older than `oldest_operation`
/// (see
///   `Node::next_sequence`): the outputs then depend on a history from before.
[[nodiscard]] std::vector<Ref<LeafNode>> reachable_leaves(
    const std::vector<Tensor>& outputs, std::uint64_t oldest_operation,
    const char* operation = "reachable_leaves");

}  // namespace capstan::autograd

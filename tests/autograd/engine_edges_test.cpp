#include "autograd/engine_edges.h"

#include <doctest/doctest.h>

#include "autograd/arithmetic.h"
#include "autograd/math.h"
#include "ops/creation.h"
#include "tests/support/testing.h"

namespace capstan::autograd {
namespace {

using capstan::testing::check_close;

Tensor leaf(float value) {
  return Tensor::from_vector<float>({2}, {value, value}).set_requires_grad();
}

TEST_SUITE("autograd/engine_edges") {
  TEST_CASE("grad_edges gives the gradients of edges and leaves grad alone") {
    const Tensor x = leaf(2);
    const Tensor y = x * x;
    const Tensor z = y * 3.0;
    const auto grads = grad_edges({z}, {edge_of(x), edge_of(y)}, {ones({2})}, {});
    check_close(grads[0], {12.0, 12.0}, 0);
    check_close(grads[1], {3.0, 3.0}, 0);
    CHECK(!x.grad().defined());
  }

  TEST_CASE("grad_edges names an unused target by its position, or leaves it undefined") {
    const Tensor x = leaf(2);
    const Tensor other = leaf(1);
    const Tensor y = x * x;
    CHECK_THROWS_WITH_AS(
        (void)grad_edges({y}, {edge_of(x), edge_of(other)}, {ones({2})}, {.retain_graph = true}),
        doctest::Contains("grad_edges: target 1 of 2, has no influence"), GradError);
    CHECK_THROWS_AS((void)grad_edges({y}, {Edge{}}, {ones({2})}, {.retain_graph = true}),
                    GradError);
    const auto grads =
        grad_edges({y}, {edge_of(other), edge_of(x), Edge{}}, {ones({2})}, {.allow_unused = true});
    CHECK(!grads[0].defined());
    check_close(grads[1], {4.0, 4.0}, 0);
    CHECK(!grads[2].defined());
  }

  TEST_CASE("reachable_leaves finds each leaf once, oldest first") {
    const Tensor a = leaf(1);
    const Tensor b = leaf(2);
    const Tensor apart = leaf(3);
    const Edge edge_a = edge_of(a);
    const Edge edge_b = edge_of(b);
    const std::uint64_t start = Node::next_sequence();
    const Tensor y = b * a;
    const auto leaves = reachable_leaves({y, y * b, ones({2})}, start);
    REQUIRE(leaves.size() == 2);
    CHECK(leaves[0].get() == edge_a.node.get());
    CHECK(leaves[1].get() == edge_b.node.get());
    CHECK(reachable_leaves({ones({2})}, start).empty());
  }

  TEST_CASE("reachable_leaves names the operation that is too old") {
    const Tensor before = exp(leaf(1));
    const std::uint64_t start = Node::next_sequence();
    const Tensor y = before * 2.0;
    CHECK_THROWS_WITH_AS((void)reachable_leaves({y}, start), doctest::Contains("exp (recorded at "),
                         GradError);
  }
}

}  // namespace
}  // namespace capstan::autograd

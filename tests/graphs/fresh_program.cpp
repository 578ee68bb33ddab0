// Captures before anything else has run in the process: whatever a library sets up at its first use
// must not disturb that. Prints what is wrong; silence and status 0 mean that nothing is.
//
//   fresh_program cpu|gpu matmul|convolution|callable

#include <iostream>
#include <string>

#include "capstan.h"

using namespace capstan;

namespace {

int check(const Tensor& got, double want) {
  const double least = min(got).item();
  const double greatest = max(got).item();
  if (least == want && greatest == want) return 0;
  std::cout << "expected " << want << ", got " << least << " to " << greatest << '\n';
  return 1;
}

int run(Device device, const std::string& way) {
  const Tensor a = ones({64, 32}, {.device = device});
  const Tensor b = full({32, 48}, 2.0, {.device = device}).set_requires_grad();
  if (way == "callable") {
    GraphedCallable graphed =
        make_graphed_callables([b](const Tensor& x) { return matmul(x, b); }, a, {.warmup = 0});
    const Tensor y = graphed(a);
    y.sum().backward();
    return check(y.detach(), 64.0) + check(b.grad(), 64.0);
  }
  Graph graph(device);
  Tensor y;
  if (way == "convolution") {
    const Tensor images = ones({4, 8, 12, 12}, {.device = device});
    const Tensor weight = full({6, 8, 3, 3}, 2.0, {.device = device});
    capture(graph, [&] { y = conv2d(images, weight); });
    graph.replay();
    return check(y, 144.0);
  }
  capture(graph, [&] { y = matmul(a, b.detach()); });
  graph.replay();
  return check(y, 64.0);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 3) return run(Device::parse(argv[1]), argv[2]);
    std::cout << "usage: fresh_program cpu|gpu matmul|convolution|callable\n";
  } catch (const std::exception& error) {
    std::cout << error.what() << '\n';
  }
  return 1;
}

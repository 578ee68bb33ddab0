#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "framework/runtime/forbidden.h"
#include "framework/tensor/tensor.h"

namespace capstan {
namespace {

constexpr std::int64_t kEdge = 3;          // shown at each end of a long axis
constexpr std::int64_t kSummarise = 1000;  // elements from which on long axes are cut

std::string format(double value, DType dtype) {
  char text[32];
  if (!is_floating(dtype)) {
    std::snprintf(text, sizeof(text), "%lld", static_cast<long long>(value));
  } else if (std::isfinite(value) && value == std::trunc(value) && std::abs(value) < 1e6) {
    std::snprintf(text, sizeof(text), "%.0f.", value);
  } else {
    std::snprintf(text, sizeof(text), "%.5g", value);
  }
  return text;
}

struct Printer {
  const std::vector<double>& values;
  const Shape& shape;
  DType dtype;
  bool summarise;
  std::string text{};

  void print(int axis, std::int64_t begin, std::int64_t count) {
    if (axis == shape.rank()) {
      text += dtype == DType::boolean
                  ? (values[static_cast<std::size_t>(begin)] != 0.0 ? "true" : "false")
                  : format(values[static_cast<std::size_t>(begin)], dtype);
      return;
    }
    const std::int64_t size = shape[axis];
    const std::int64_t step = size == 0 ? 0 : count / size;
    const bool last = axis + 1 == shape.rank();
    text += '[';
    for (std::int64_t i = 0; i < size; ++i) {
      if (i > 0) text += last ? ", " : ",\n" + std::string(static_cast<std::size_t>(axis) + 1, ' ');
      if (summarise && size > 2 * kEdge && i == kEdge) {
        text += "...";
        i = size - kEdge - 1;
        continue;
      }
      print(axis + 1, begin + i * step, step);
    }
    text += ']';
  }
};

}  // namespace

std::string Tensor::to_string(Where where) const {
  if (!defined()) return "undefined";
  const CallSite site(where);
  refuse_while_capturing(device(), Forbidden::to_string);
  const std::vector<double> values = to_vector<double>(where);
  Printer printer{values, shape(), dtype(), numel() > kSummarise};
  printer.print(0, 0, numel());
  return printer.text;
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) return out << "undefined";
  return out << tensor.to_string() << ' ' << describe(tensor);
}

}  // namespace capstan

#include "framework/core/promote.h"

#include <doctest/doctest.h>

namespace capstan {
namespace {

struct Row {
  DType a;
  Weight a_weight;
  DType b;
  Weight b_weight;
  DType result;
};
constexpr Row kGolden[] = {
#include "tests/golden/promotion.inc"
};

}  // namespace

TEST_SUITE_BEGIN("core/promote");

TEST_CASE("the result of two operands is PyTorch's, for all dtypes and weights") {
  for (const Row& row : kGolden) {
    CAPTURE(row.a);
    CAPTURE(static_cast<int>(row.a_weight));
    CAPTURE(row.b);
    CAPTURE(static_cast<int>(row.b_weight));
    CHECK(result_type({{row.a, row.a_weight}, {row.b, row.b_weight}}) == row.result);
    CHECK(result_type({{row.b, row.b_weight}, {row.a, row.a_weight}}) == row.result);
    if (row.a_weight == row.b_weight) CHECK(promote_types(row.a, row.b) == row.result);
  }
}

TEST_CASE("of three operands the strongest of the highest kind decides") {
  constexpr Participant kHalf{DType::float16, Weight::tensor};
  constexpr Participant kLong{DType::int64, Weight::tensor};
  constexpr Participant kDouble{DType::float64, Weight::scalar_tensor};
  constexpr Participant kNumber{DType::float32, Weight::number};
  static_assert(result_type({kHalf, kLong, kNumber}) == DType::float16);
  static_assert(result_type({kLong, kDouble, kNumber}) == DType::float64);
  static_assert(result_type({kHalf, kDouble, kNumber}) == DType::float16);
  CHECK(result_type({kLong, kNumber}) == DType::float32);
}

TEST_SUITE_END();

}  // namespace capstan

#include "framework/core/error.h"

#include <doctest/doctest.h>

#include "framework/core/device.h"
#include "framework/core/shape.h"

using namespace capstan;

namespace {

void check_positive(int value, Where where = Where::current()) {
  const CallSite site(where);
  CAPSTAN_CHECK(value > 0, ValueError, "check: value must be positive, got ", value);
}

}  // namespace

TEST_SUITE("core/error") {
  TEST_CASE("a failed check prints its parts and the user's line") {
    const std::string place = "error_test.cpp:" + std::to_string(__LINE__ + 1) + ")";
    CHECK_THROWS_WITH_AS(check_positive(-3), doctest::Contains(place.c_str()), ValueError);
    CHECK_THROWS_WITH_AS(check_positive(-3),
                         doctest::Contains("check: value must be positive, got -3 (at "),
                         ValueError);
  }

  TEST_CASE("a message names the module path, outermost first") {
    const std::string net = "net";
    const std::string anonymous;
    const std::string layer = "fc1";
    const ModuleScope outer(net);
    const ModuleScope middle(anonymous);
    const ModuleScope inner(layer);
    CHECK_THROWS_WITH_AS(check_positive(0), doctest::Contains("in net.fc1: check: value"),
                         ValueError);
  }

  TEST_CASE("the outermost call site wins, and is gone afterwards") {
    const Where outer = Where::current();
    {
      const CallSite first(outer);
      const CallSite second(Where::current());
      CHECK(detail::call_context.where.line() == outer.line());
      const CallSiteOverride forward(Where{});
      CHECK(detail::call_context.where.line() == 0);
    }
    CHECK(detail::call_context.where.line() == 0);
    CHECK(detail::module_path().empty());
  }
}

TEST_SUITE("core/device") {
  TEST_CASE("names are parsed and printed") {
    CHECK(Device::parse("cpu") == Device::cpu());
    CHECK(Device::parse("cuda") == Device::gpu(0));
    CHECK(Device::parse("gpu:3") == Device::gpu(3));
    CHECK(detail::concat(Device::gpu(3), " ", Device::cpu()) == "gpu:3 cpu");
  }

  TEST_CASE("a bad name is refused and shown") {
    for (const char* bad : {"", "tpu", "gpu:", "gpu:x", "gpu:16", "gpu:-1", "gpu:1x"}) {
      CHECK_THROWS_WITH_AS((void)Device::parse(bad),
                           doctest::Contains(detail::concat("got \"", bad, '"').c_str()),
                           ValueError);
    }
  }
}

TEST_SUITE("core/shape") {
  TEST_CASE("counts, indexes from both ends and prints") {
    const Shape shape{2, 3, 4};
    CHECK(shape.numel() == 24);
    CHECK(shape[-1] == 4);
    CHECK(Shape{}.numel() == 1);
    CHECK(detail::concat(shape, Shape{}) == "[2, 3, 4][]");
    CHECK_THROWS_WITH_AS((void)shape[3], "shape: no axis 3 in [2, 3, 4]", IndexError);
  }

  TEST_CASE("insert and erase are inverse") {
    Shape shape{2, 4};
    shape.insert(1, 3);
    CHECK(shape == Shape{2, 3, 4});
    shape.erase(-2);
    CHECK(shape == Shape{2, 4});
  }

  TEST_CASE("more than eight dimensions are refused") {
    CHECK_THROWS_WITH_AS((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}),
                         doctest::Contains("at most 8 dimensions"), ShapeError);
  }

  TEST_CASE("broadcasting aligns at the last axis and stretches ones") {
    CHECK(broadcast_shapes({4, 1, 3}, {2, 1}, "add") == Shape{4, 2, 3});
    CHECK(broadcast_shapes({}, {5}, "add") == Shape{5});
    CHECK(broadcast_shapes({0}, {1}, "add") == Shape{0});
    CHECK_THROWS_WITH_AS((void)broadcast_shapes({2, 3}, {4}, "add"),
                         doctest::Contains("add: shapes do not broadcast, got [2, 3] and [4]"),
                         ShapeError);
  }

  TEST_CASE("a view reaches from its first to its last element, and nowhere if it is empty") {
    CHECK(reach_of({}, {}) == 1);
    CHECK(reach_of({2, 3}, {3, 1}) == 6);
    CHECK(reach_of({3, 2}, {1, 10}) == 13);
    CHECK(reach_of({4, 3}, {0, 2}) == 5);
    CHECK(reach_of({0, 3}, {3, 1}) == 0);
  }

  TEST_CASE("dense strides are row-major, also over an empty axis") {
    CHECK(contiguous_strides({2, 3, 4}) == Strides{12, 4, 1});
    CHECK(contiguous_strides({2, 0, 4}) == Strides{4, 4, 1});
  }
}

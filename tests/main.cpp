#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "tests/support/skipped.h"

namespace {

struct Totals {
  unsigned passed = 0;
  unsigned failed = 0;
  unsigned skipped = 0;
};

Totals totals;

class Tally final : public doctest::IReporter {
 public:
  explicit Tally(const doctest::ContextOptions&) {}

  void test_case_start(const doctest::TestCaseData&) override {
    capstan::testing::gpu_part_skipped() = false;
  }

  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    const bool skipped = capstan::testing::gpu_part_skipped();
    if (skipped) ++totals.skipped;
    if (!stats.testCaseSuccess) {
      ++totals.failed;
    } else if (!skipped || stats.numAssertsCurrentTest > 0) {
      ++totals.passed;
    }
  }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

}  // namespace

REGISTER_LISTENER("tally", 1, Tally);

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int result = context.run();
  if (context.shouldExit()) return result;

  // The form that tests/run adds up.
  std::printf("totals: %u passed, %u failed, %u skipped\n", totals.passed, totals.failed,
              totals.skipped);
  return result;
}

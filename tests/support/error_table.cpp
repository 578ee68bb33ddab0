#include "tests/support/error_table.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "framework/core/error.h"
#include "framework/memory/caching_allocator.h"

namespace capstan::testing {

void check_errors(const std::vector<ErrorRow>& rows, Device device, Where where) {
  const std::string file = std::filesystem::path(where.file_name()).filename().string();
  for (const ErrorRow& row : rows) {
    CAPTURE(row.text);
    const auto in_use = [device] { return allocator(device).stats().total.allocated_bytes; };
    const auto before = in_use();
    std::string message = "it threw nothing";
    try {
      row.call(device);
    } catch (const Error& error) {
      message = error.what();
    }
    CAPTURE(message);
    CHECK(message.find(row.text) != std::string::npos);
    CHECK(message.find(file) != std::string::npos);
    CHECK(in_use() == before);
  }
}

}  // namespace capstan::testing

#pragma once

#include <functional>
#include <vector>

#include "framework/core/call_site.h"
#include "framework/core/device.h"

namespace capstan::testing {

/// One wrong call and what it says.
struct ErrorRow {
  const char* text;  ///< the message holds this: the operation, what it got, what to do
  std::function<void(Device)> call;
};

/// Makes every wrong call on `device`: each throws an Error whose message holds the row's text and
/// the caller's file (the user's line), and leaves the memory in use as it was.
void check_errors(const std::vector<ErrorRow>& rows, Device device, Where where = Where::current());

}  // namespace capstan::testing

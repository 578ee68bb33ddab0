#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/core/call_site.h"
#include "framework/core/dtype.h"
#include "framework/core/ref.h"
#include "framework/core/shape.h"

namespace capstan {

/// A stretch of device memory that an operation reads or writes.
struct Access {
  const void* address = nullptr;
  std::int64_t bytes = 0;
  std::uint64_t pool = 0;             ///< owner pool, 0 is the device's common pool
  const RefCounted* owner = nullptr;  ///< the storage; the recording keeps foreign ones alive
  DType dtype = DType::float32;
  Shape shape{};
  Strides strides{};  ///< empty: every byte of the stretch counts
};

/// One operation of a capture.
struct RecordedOp {
  std::string name;          ///< "matmul"
  Where where{};             ///< the user's line
  std::string module;        ///< "net.fc1", or empty
  std::string graph;         ///< the graph whose replay was captured: "inner" or "inner/innermost"
  std::uint64_t stream = 0;  ///< stream id
  std::string detail;        ///< shapes and dtypes of what it reads, for people
  std::vector<Access> reads;
  std::vector<Access> writes;
  std::vector<std::int64_t> after;  ///< operations that order puts before this one (nearest only)
};

/// What a capture keeps beside the native graph: every operation in the order of the calls.
struct Recording {
  std::vector<RecordedOp> operations;
};

}  // namespace capstan

#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

#include "framework/core/call_site.h"

namespace capstan {

/// Base of every exception of this library. The message reads
/// `[in MODULE.PATH: ]operation: what is wrong, got VALUES; what to do[ (at FILE:LINE)]`;
/// module path and the user's line come from the call context of the throwing thread.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message);

 protected:
  /// Takes the message as it is, without the call context.
  struct Verbatim {};
  Error(Verbatim, const std::string& message) : std::runtime_error(message) {}
};

/// Sizes or ranks do not fit.
class ShapeError : public Error {
 public:
  using Error::Error;
};
/// A dtype is not supported or does not match.
class DTypeError : public Error {
 public:
  using Error::Error;
};
/// Tensors on different devices, or a device that does not exist.
class DeviceError : public Error {
 public:
  using Error::Error;
};
/// An index or a label is out of range.
class IndexError : public Error {
 public:
  using Error::Error;
};
/// An option or argument has a value outside its domain.
class ValueError : public Error {
 public:
  using Error::Error;
};
/// A call that the object's state does not allow.
class StateError : public Error {
 public:
  using Error::Error;
};
/// Reverse-mode differentiation cannot proceed.
class GradError : public Error {
 public:
  using Error::Error;
};
/// An operation that a capture cannot record, or a capture that is not well formed.
class CaptureError : public Error {
 public:
  using Error::Error;
};
/// A file is missing, truncated or malformed.
class DataError : public Error {
 public:
  using Error::Error;
};
/// The device has no memory left for a request.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};
/// A CUDA library refused a call. `code()` is the library's own number.
class CudaError : public Error {
 public:
  CudaError(int code, const std::string& message) : Error(message), code_(code) {}
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

namespace detail {

template <typename... Parts>
[[nodiscard]] std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

}  // namespace detail
}  // namespace capstan

/// Throws `ErrorType` with the remaining arguments streamed into one message, unless `condition`
/// holds. The message is built only on failure, so arguments may be costly to print.
#define CAPSTAN_CHECK(condition, ErrorType, ...)               \
  do {                                                         \
    if (!(condition)) [[unlikely]] {                           \
      throw ErrorType(::capstan::detail::concat(__VA_ARGS__)); \
    }                                                          \
  } while (false)

#pragma once

#include <exception>
#include <optional>

#include "framework/runtime/stream.h"
#include "graphs/capture_scope.h"

namespace capstan {

/// Makes the stream on which this thread captures current, ordered after the caller's, and the
/// other way round at the end.
class [[nodiscard]] SideTrip {
 public:
  explicit SideTrip(Device device)
      : caller_(current_stream(device)), side_(detail::capture_stream(device)) {
    side_.wait_stream(caller_);
    guard_.emplace(side_);
  }
  ~SideTrip() {
    if (!guard_) return;
    try {
      end();
    } catch (const std::exception&) {
      // The exception that ends the trip says more.
    }
  }
  void end() {
    guard_.reset();
    caller_.wait_stream(side_);
  }
  SideTrip(const SideTrip&) = delete;
  SideTrip& operator=(const SideTrip&) = delete;

 private:
  const Stream caller_;
  const Stream side_;
  std::optional<StreamGuard> guard_;
};

/// True if both tensors are the same elements at the same place.
[[nodiscard]] inline bool same_memory(const Tensor& a, const Tensor& b) {
  return a.is_same(b) || (a.storage() == b.storage() && a.offset() == b.offset() &&
                          a.shape() == b.shape() && a.strides() == b.strides());
}

}  // namespace capstan

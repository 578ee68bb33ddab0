#pragma once

#include <cstdint>

namespace capstan::detail {

/// Where a capture, or a trial run before it, may be made to fail.
enum class CapturePoint : std::uint8_t {
  begin,        ///< the stream has just begun to capture
  operation,    ///< an operation announces itself
  end,          ///< the capture is about to end
  instantiate,  ///< the graph is about to become executable
};

/// For tests: called on this thread at each point, and may throw.
using CaptureProbe = void (*)(CapturePoint point);
inline constinit thread_local CaptureProbe capture_probe = nullptr;

inline void probe_capture(CapturePoint point) {
  if (capture_probe != nullptr) [[unlikely]]
    capture_probe(point);
}

}  // namespace capstan::detail

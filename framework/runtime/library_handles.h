#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/runtime/stream.h"

struct cublasLtContext;

namespace capstan {

/// Device memory in which one operation keeps what it needs only while it runs.
struct Scratch {
  /// Zero whenever no kernel runs; a kernel that counts its blocks here leaves it at zero again.
  unsigned* ticket = nullptr;
  void* data = nullptr;  ///< 256-byte aligned, of any content
  std::size_t bytes = 0;
};

/// Scratch for work that is about to be submitted to `stream`, at least `bytes` of it. All
/// operations of a stream share it, which is safe since they run one after the other. Work under
/// capture gets scratch that belongs to the graph (one for each of its streams) and dies with it,
/// so replays may overlap with eager work and with other graphs. Never from a caching allocator's
/// pool; permitted during a capture. @throws OutOfMemory.
[[nodiscard]] Scratch scratch(StreamState& stream, std::size_t bytes);

/// The cuBLASLt handle of the device of `stream`, made on first use and kept for the process.
/// Permitted during a capture.
[[nodiscard]] cublasLtContext* cublaslt_handle(StreamState& stream);

namespace detail {
/// Frees the scratch of a stream that is about to be destroyed, after waiting for it.
void release_scratch(void* native_stream) noexcept;
}  // namespace detail

}  // namespace capstan

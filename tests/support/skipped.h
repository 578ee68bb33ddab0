#pragma once

namespace capstan::testing {

/// True once the running test case left something out for want of a GPU. `main` clears it before
/// each case and counts it after.
[[nodiscard]] bool& gpu_part_skipped() noexcept;

}  // namespace capstan::testing

#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace capstan::cpu {

/// Threads that `parallel_for` uses, the caller included. At first the number of processors, or
/// CAPSTAN_NUM_THREADS where that is set.
[[nodiscard]] int num_threads() noexcept;
/// Results of matrix products and reductions may differ in the last bit between thread counts.
/// @throws ValueError  unless 1 <= count <= 256.
void set_num_threads(int count);

/// The part of `parallel_for` that is no template.
using RangeFunction = void (*)(const void* body, std::int64_t begin, std::int64_t end);
void parallel_ranges(std::int64_t count, std::int64_t grain, RangeFunction function,
                     const void* body);

/// Runs `body(begin, end)` over consecutive ranges that cover [0, count), each at least `grain`
/// long except the last, on up to `num_threads()` threads; returns when all are done. The split
/// depends on count, grain and the number of threads alone. Calls from inside a body, and from a
/// thread while another uses the workers, run serially over the same ranges. Allocates nothing.
/// `body` must not throw.
template <typename Body>
void parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
  parallel_ranges(
      count, grain,
      [](const void* b, std::int64_t begin, std::int64_t end) {
        (*static_cast<const Body*>(b))(begin, end);
      },
      std::addressof(body));
}

}  // namespace capstan::cpu

#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/cpu/loop.h"
#include "ops/kernels.h"

namespace capstan::cpu {

/// Calls `body(entry, begin, end)` over all elements of all parameters as if they were one array,
/// so that threads share big and small parameters evenly.
template <typename Body>
void for_each_parameter(const ParameterList& list, const Body& body) {
  std::int64_t total = 0;
  for (int i = 0; i < list.count; ++i) total += list.entries[i].numel;
  parallel_for(total, kCheapGrain, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t first = 0;
    for (int i = 0; i < list.count && first < end; ++i) {
      const ParameterEntry& entry = list.entries[i];
      const std::int64_t from = std::max<std::int64_t>(begin - first, 0);
      const std::int64_t to = std::min(end - first, entry.numel);
      if (from < to) body(entry, from, to);
      first += entry.numel;
    }
  });
}

/// Runs `update(entry, begin, end)` as above and counts the step, unless it is to be skipped.
template <typename Body>
void run_step(const ParameterList& list, std::int64_t* step, const Body& update) {
  if (list.skip != nullptr && *list.skip != 0.0F) return;
  for_each_parameter(list, update);
  if (list.advance_step) ++*step;
}

}  // namespace capstan::cpu

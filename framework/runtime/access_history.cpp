#include "framework/runtime/access_history.h"

#include <algorithm>

namespace capstan {
namespace {

// Two layouts with more stretches than this count as overlapping.
constexpr std::int64_t kMostRuns = std::int64_t{1} << 20;

std::uintptr_t begin_of(const Access& access) {
  return reinterpret_cast<std::uintptr_t>(access.address);
}

std::uintptr_t end_of(const Access& access) {
  return begin_of(access) + static_cast<std::uintptr_t>(access.bytes);
}

struct Axis {
  std::int64_t size;
  std::int64_t stride;  // bytes
};

// A strided access as dense runs, `run` bytes each, one for each index of `axes`.
struct Layout {
  explicit Layout(const Access& access) : first(begin_of(access)), run(access.bytes) {
    if (access.strides.empty()) return;
    run = static_cast<std::int64_t>(size_of(access.dtype));
    const std::int64_t element = run;
    for (int axis = 0; axis < access.shape.rank(); ++axis) {
      if (access.shape[axis] == 1 || access.strides[axis] == 0) continue;
      axes.push_back({access.shape[axis], access.strides[axis] * element});
    }
    std::sort(axes.begin(), axes.end(), [](Axis a, Axis b) { return a.stride > b.stride; });
    while (!axes.empty() && axes.back().stride <= run) {
      run += (axes.back().size - 1) * axes.back().stride;
      axes.pop_back();
    }
    for (const Axis& axis : axes) count = std::min(kMostRuns + 1, count * axis.size);
  }

  [[nodiscard]] bool dense() const { return axes.empty(); }

  [[nodiscard]] std::vector<std::uintptr_t> starts() const {
    std::vector<std::uintptr_t> found{first};
    for (const Axis& axis : axes) {
      const std::size_t before = found.size();
      for (std::int64_t i = 1; i < axis.size; ++i) {
        for (std::size_t k = 0; k < before; ++k) {
          found.push_back(found[k] + static_cast<std::uintptr_t>(i * axis.stride));
        }
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  std::uintptr_t first;
  std::int64_t run;
  std::int64_t count = 1;
  std::vector<Axis> axes;
};

bool spans_meet(const Access& a, const Access& b) {
  return begin_of(a) < end_of(b) && begin_of(b) < end_of(a);
}

bool same_elements(const Access& a, const Access& b) {
  return a.address == b.address && a.dtype == b.dtype && a.shape == b.shape &&
         a.strides == b.strides && a.bytes == b.bytes;
}

bool is_dense(const Access& access) {
  return access.strides.empty() ||
         access.shape.numel() * static_cast<std::int64_t>(size_of(access.dtype)) == access.bytes;
}

}  // namespace

bool overlap(const Access& a, const Access& b) {
  if (!spans_meet(a, b)) return false;
  if (is_dense(a) && is_dense(b)) return true;
  const Layout of_a(a);
  const Layout of_b(b);
  if ((of_a.dense() && of_b.dense()) || of_a.count > kMostRuns || of_b.count > kMostRuns) {
    return true;
  }
  const std::vector<std::uintptr_t> starts_a = of_a.starts();
  const std::vector<std::uintptr_t> starts_b = of_b.starts();
  const auto run_a = static_cast<std::uintptr_t>(of_a.run);
  const auto run_b = static_cast<std::uintptr_t>(of_b.run);
  for (std::size_t i = 0, k = 0; i < starts_a.size() && k < starts_b.size();) {
    if (starts_a[i] + run_a <= starts_b[k]) {
      ++i;
    } else if (starts_b[k] + run_b <= starts_a[i]) {
      ++k;
    } else {
      return true;
    }
  }
  return false;
}

std::vector<std::pair<std::uintptr_t, std::uintptr_t>> runs_of(const Access& access) {
  const Layout layout(access);
  if (is_dense(access) || layout.count > kMostRuns) return {{begin_of(access), end_of(access)}};
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> runs;
  for (const std::uintptr_t start : layout.starts()) {
    runs.emplace_back(start, start + static_cast<std::uintptr_t>(layout.run));
  }
  return runs;
}

void detail::merge(AccessHistory::Clock& clock, const AccessHistory::Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size(), 0);
  for (std::size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

void AccessHistory::split(std::uintptr_t address) {
  const auto after = stretches_.upper_bound(address);
  if (after == stretches_.begin()) return;
  const auto found = std::prev(after);
  if (found->first == address || found->second.end <= address) return;
  Stretch rest = found->second;
  found->second.end = address;
  stretches_.emplace_hint(after, address, std::move(rest));
}

void AccessHistory::fill_gaps(std::uintptr_t begin, std::uintptr_t end) {
  for (auto next = stretches_.lower_bound(begin); begin < end; ++next) {
    const std::uintptr_t stop = next == stretches_.end() ? end : std::min(end, next->first);
    if (begin < stop) next = stretches_.emplace_hint(next, begin, Stretch{stop, {}});
    begin = next->second.end;
  }
}

void AccessHistory::add(const Use& use, const Clock& clock, std::vector<Conflict>& conflicts) {
  const std::uintptr_t begin = begin_of(*use.access);
  const std::uintptr_t end = end_of(*use.access);
  if (begin == end) return;
  split(begin);
  split(end);
  fill_gaps(begin, end);

  const bool dense = is_dense(*use.access);
  for (auto at = stretches_.find(begin); at != stretches_.end() && at->first < end; ++at) {
    std::vector<Use>& uses = at->second.uses;
    for (const Use& earlier : uses) {
      if (!earlier.writes && !use.writes) continue;
      if (detail::at(clock, earlier.chain) >= earlier.position) continue;
      const auto known = std::find_if(conflicts.begin(), conflicts.end(),
                                      [&](const Conflict& c) { return c.chain == earlier.chain; });
      if (known != conflicts.end() && known->position >= earlier.position) continue;
      if (!overlap(*earlier.access, *use.access)) continue;
      const Conflict conflict{.first = earlier.number,
                              .second = use.number,
                              .first_access = earlier.access,
                              .second_access = use.access,
                              .first_writes = earlier.writes,
                              .second_writes = use.writes,
                              .chain = earlier.chain,
                              .position = earlier.position};
      if (known != conflicts.end()) {
        *known = conflict;
      } else {
        conflicts.push_back(conflict);
      }
    }
    // Whoever is ordered after `use` is then ordered after these, too.
    std::erase_if(uses, [&](const Use& earlier) {
      return detail::at(clock, earlier.chain) >= earlier.position &&
             (use.writes || !earlier.writes) &&
             (dense || same_elements(*earlier.access, *use.access));
    });
    uses.push_back(use);
  }
}

std::vector<AccessHistory::Conflict> AccessHistory::add(const Operation& operation,
                                                        const Clock& clock) {
  std::vector<Conflict> conflicts;
  for (const bool writes : {false, true}) {
    for (const Access& access : writes ? operation.writes : operation.reads) {
      add(Use{.number = operation.number,
              .chain = operation.chain,
              .position = operation.position,
              .access = &access,
              .writes = writes},
          clock, conflicts);
    }
  }
  return conflicts;
}

bool AccessHistory::in_use(const void* address, std::size_t bytes, const Clock& clock) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  auto at = stretches_.upper_bound(begin);
  if (at != stretches_.begin()) --at;
  for (; at != stretches_.end() && at->first < begin + bytes; ++at) {
    if (at->second.end <= begin) continue;
    for (const Use& use : at->second.uses) {
      if (detail::at(clock, use.chain) < use.position) return true;
    }
  }
  return false;
}

void AccessHistory::forget(const Clock& clock) {
  for (auto at = stretches_.begin(); at != stretches_.end();) {
    std::vector<Use>& uses = at->second.uses;
    std::erase_if(uses,
                  [&](const Use& use) { return detail::at(clock, use.chain) >= use.position; });
    at = uses.empty() ? stretches_.erase(at) : std::next(at);
  }
}

void AccessHistory::forget(const void* address, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  split(begin);
  split(begin + bytes);
  stretches_.erase(stretches_.lower_bound(begin), stretches_.lower_bound(begin + bytes));
}

std::vector<std::int64_t> AccessHistory::numbers() const {
  std::vector<std::int64_t> found;
  for (const auto& [begin, stretch] : stretches_) {
    for (const Use& use : stretch.uses) found.push_back(use.number);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace capstan

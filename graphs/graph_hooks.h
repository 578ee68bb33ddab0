#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

namespace capstan {

enum class GraphMoment : std::uint8_t { capture_end, post_instantiate, replay_start, replay_end };

/// What users have called at moments of a graph's life, in the order of registration.
class GraphHooks {
 public:
  /// @throws ValueError  for an empty function. @return  a number for `remove`.
  int add(GraphMoment moment, std::function<void()> hook);
  /// Also from a hook. @throws ValueError  if there is no such hook.
  void remove(int id);

  /// Calls those of `moment` that are registered now; an exception of one skips the rest.
  void run(GraphMoment moment);
  /// As `run`, and returns the exception, or null.
  [[nodiscard]] std::exception_ptr run_caught(GraphMoment moment) noexcept;
  /// True while a hook runs.
  [[nodiscard]] bool running() const noexcept { return running_; }

 private:
  struct Entry {
    int id;
    GraphMoment moment;
    std::shared_ptr<const std::function<void()>> hook;  // shared: it may remove itself
  };
  std::vector<Entry> entries_;
  int next_id_ = 0;
  bool running_ = false;
};

}  // namespace capstan

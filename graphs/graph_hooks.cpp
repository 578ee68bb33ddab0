#include "graphs/graph_hooks.h"

#include <utility>

#include "framework/core/error.h"

namespace capstan {

int GraphHooks::add(GraphMoment moment, std::function<void()> hook) {
  CAPSTAN_CHECK(hook, ValueError, "graph hook: the function is empty; pass something to call");
  entries_.push_back(
      {next_id_, moment, std::make_shared<const std::function<void()>>(std::move(hook))});
  return next_id_++;
}

void GraphHooks::remove(int id) {
  const auto removed = std::erase_if(entries_, [id](const Entry& entry) { return entry.id == id; });
  CAPSTAN_CHECK(removed != 0, ValueError, "graph.remove_hook: there is no hook ", id,
                "; pass what its registration returned, once");
}

void GraphHooks::run(GraphMoment moment) {
  if (entries_.empty()) [[likely]]
    return;
  std::vector<std::shared_ptr<const std::function<void()>>> hooks;
  for (const Entry& entry : entries_) {
    if (entry.moment == moment) hooks.push_back(entry.hook);
  }
  struct Running {
    bool& flag;
    explicit Running(bool& is_running) : flag(is_running) { flag = true; }
    ~Running() { flag = false; }
  } const scope(running_);
  for (const auto& hook : hooks) (*hook)();
}

std::exception_ptr GraphHooks::run_caught(GraphMoment moment) noexcept {
  try {
    run(moment);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace capstan

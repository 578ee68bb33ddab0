#include "framework/runtime/emulated_graph.h"

#include <algorithm>
#include <utility>

#include "framework/runtime/capture_session.h"
#include "framework/runtime/emulated_runtime.h"

namespace capstan::emulated {
namespace {

class Exec final : public NativeExec {
 public:
  explicit Exec(Ref<Plan> plan) : plan_(std::move(plan)) {}
  void launch(StreamState& stream) override {
    CaptureSession* const session = stream.session();
    if (session == nullptr) return enqueue_graph(stream, plan_, last_);
    static_cast<OrderedTape*>(session->builder())->append_replay(stream, plan_->tape);
  }

 private:
  const Ref<Plan> plan_;
  Ref<Mark> last_;  // the end of the last launch
};

class Graph final : public NativeGraph {
 public:
  explicit Graph(Ref<OrderedTape> tape) : tape_(std::move(tape)) {}
  std::unique_ptr<NativeExec> instantiate() override {
    return std::make_unique<Exec>(make_ref<Plan>(tape_));
  }
  std::int64_t node_count() const override {
    return static_cast<std::int64_t>(tape_->calls().size());
  }

 private:
  const Ref<OrderedTape> tape_;
};

}  // namespace

OrderedTape::Frontier OrderedTape::frontier(std::uint64_t stream) {
  const std::lock_guard lock(order_mutex_);
  return frontiers_[stream];
}

void OrderedTape::wait(std::uint64_t stream, const Frontier& frontier) {
  const std::lock_guard lock(order_mutex_);
  Frontier& own = frontiers_[stream];
  own.insert(own.end(), frontier.begin(), frontier.end());
  std::sort(own.begin(), own.end());
  own.erase(std::unique(own.begin(), own.end()), own.end());
}

void OrderedTape::appended(StreamState& stream) {
  const std::lock_guard lock(order_mutex_);
  Frontier& own = frontiers_[stream.id];
  after_.push_back(std::exchange(own, {after_.size()}));
}

Plan::Plan(Ref<OrderedTape> recorded) : tape(std::move(recorded)), followers(tape->after().size()) {
  for (std::size_t i = 0; i < followers.size(); ++i) {
    const OrderedTape::Frontier& before = tape->after()[i];
    for (const std::size_t call : before) followers[call].push_back(i);
    open.push_back(before.size());
    if (before.empty()) first.push_back(i);
  }
}

Ref<NativeGraph> make_graph(Ref<OrderedTape> tape) { return make_ref<Graph>(std::move(tape)); }

}  // namespace capstan::emulated

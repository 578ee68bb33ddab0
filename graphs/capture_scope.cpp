#include "graphs/capture_scope.h"

#include <utility>
#include <vector>

#include "framework/core/error.h"
#include "framework/runtime/forbidden.h"

namespace capstan {

Stream detail::capture_stream(Device device) {
  thread_local std::vector<Stream> streams;
  for (const Stream& stream : streams) {
    if (stream.device() == device) return stream;
  }
  return streams.emplace_back(Stream::create(device));
}

CaptureScope::CaptureScope(Graph& graph, CaptureOptions options, Where where) : graph_(graph) {
  const CallSite site(where);
  refuse_while_capturing(graph.device(), Forbidden::capture, graph.name());
  const Stream side = detail::capture_stream(graph.device());
  side.wait_stream(current_stream(graph.device()));
  guard_.emplace(side);
  journal_.emplace(JournalMode::host_state);
  graph_.capture_begin(std::move(options), where);
}

CaptureScope::~CaptureScope() { close(); }

void CaptureScope::close() noexcept {
  if (!guard_) return;
  graph_.abandon();
  journal_.reset();
  guard_.reset();
}

void CaptureScope::finish(Where where) {
  const CallSite site(where);
  CAPSTAN_CHECK(guard_, StateError, "capture.finish: the capture of graph \"", graph_.name(),
                "\" has already ended");
  try {
    graph_.capture_end(where);
  } catch (...) {
    graph_.abandon();
    // With another stream current, its guard lives and must go first.
    if (current_stream(graph_.device()) == detail::capture_stream(graph_.device())) close();
    throw;
  }
  journal_->commit();
  journal_.reset();
  guard_.reset();
}

void capture(Graph& graph, const std::function<void()>& body, CaptureOptions options, Where where) {
  CaptureScope scope(graph, std::move(options), where);
  body();
  scope.finish(where);
}

}  // namespace capstan

#include "autograd/side_streams.h"

#include <algorithm>

namespace capstan::autograd {

StreamState& stream_of(const Node& node) {
  StreamState& current = capstan::detail::current_stream_state(node.device);
  StreamState* own = node.stream.get();
  // A capture must not meet streams that nodes remember from before it, nor the other way round.
  if (own == nullptr || current.session() != nullptr || own->session() != nullptr) return current;
  return *own;
}

SideStreams::~SideStreams() {
  try {
    settle();
  } catch (...) {
    // Only after an exception is there anything left to settle, and that one says more.
  }
}

void SideStreams::cross(StreamState& from, StreamState& to, const Tensor& grad) {
  const Stream source{Ref<StreamState>(&from)};
  const Stream target{Ref<StreamState>(&to)};
  target.wait_stream(source);
  note(source);
  note(target);
  kept_.push_back(grad);
}

void SideStreams::note(const Stream& stream) {
  if (stream == current_stream(stream.device())) return;
  if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) {
    streams_.push_back(stream);
  }
}

void SideStreams::join() const {
  for (const Stream& stream : streams_) current_stream(stream.device()).wait_stream(stream);
}

void SideStreams::settle() {
  join();
  for (const Stream& stream : streams_) stream.wait_stream(current_stream(stream.device()));
  streams_.clear();
  kept_.clear();
  for (Node* node : released_) node->release_saved();
  released_.clear();
}

}  // namespace capstan::autograd

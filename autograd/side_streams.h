#pragma once

#include <optional>
#include <vector>

#include "autograd/node.h"
#include "framework/runtime/stream.h"

namespace capstan::autograd {

/// Where the backward of `node` runs; to be asked while the caller's streams are current.
[[nodiscard]] StreamState& stream_of(const Node& node);

/// Makes a stream current unless it already is.
class [[nodiscard]] OnStream {
 public:
  explicit OnStream(StreamState& stream) {
    if (&stream != &capstan::detail::current_stream_state(stream.device)) {
      guard_.emplace(Stream(Ref<StreamState>(&stream)));
    }
  }

 private:
  std::optional<StreamGuard> guard_;
};

/// Orders the streams of one pass other than the caller's. Most passes have none, and pay nothing.
class SideStreams {
 public:
  SideStreams() = default;
  /// Settles what an exception left behind.
  ~SideStreams();
  SideStreams(const SideStreams&) = delete;
  SideStreams& operator=(const SideStreams&) = delete;

  [[nodiscard]] bool any() const noexcept { return !streams_.empty(); }
  /// Lets `to` read `grad`, which `from` makes.
  void hand_over(StreamState& from, StreamState& to, const Tensor& grad) {
    if (&from != &to) [[unlikely]]
      cross(from, to, grad);
  }
  /// Drops the saved values of `node` when no stream can read them any more.
  void release_later(Node& node) { released_.push_back(&node); }
  /// Orders the caller's streams after all others.
  void join() const;
  /// Orders the others after the caller's too, and then frees what went across: memory is used
  /// again on the stream that it comes from.
  void settle();

 private:
  void cross(StreamState& from, StreamState& to, const Tensor& grad);
  void note(const Stream& stream);

  std::vector<Stream> streams_;
  std::vector<Tensor> kept_;
  std::vector<Node*> released_;
};

}  // namespace capstan::autograd

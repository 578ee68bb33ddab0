#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "framework/runtime/cpu_tape.h"
#include "framework/runtime/runtime.h"

namespace capstan::emulated {

/// A tape that also keeps which calls the streams and events of the capture put before which.
class OrderedTape final : public cpu::Tape {
 public:
  /// Calls that the next one of a stream follows.
  using Frontier = std::vector<std::size_t>;

  [[nodiscard]] Frontier frontier(std::uint64_t stream);
  /// The next call of `stream` follows these too.
  void wait(std::uint64_t stream, const Frontier& frontier);
  /// For each call those that it follows. Valid once the capture has ended.
  [[nodiscard]] const std::vector<Frontier>& after() const noexcept { return after_; }

 private:
  void appended(StreamState& stream) override;

  std::mutex order_mutex_;
  std::map<std::uint64_t, Frontier> frontiers_;  // by stream id
  std::vector<Frontier> after_;
};

/// The calls of a tape and their order, ready to be scheduled one by one.
struct Plan : RefCounted {
  explicit Plan(Ref<OrderedTape> recorded);

  const Ref<OrderedTape> tape;
  std::vector<std::vector<std::size_t>> followers;
  std::vector<std::size_t> open;   // how many calls each still has to wait for
  std::vector<std::size_t> first;  // those that wait for none
};

[[nodiscard]] Ref<NativeGraph> make_graph(Ref<OrderedTape> tape);

}  // namespace capstan::emulated

#pragma once

#include <cstdint>
#include <memory>

#include "framework/core/call_site.h"
#include "framework/core/device.h"
#include "framework/core/ref.h"
#include "framework/random/philox.h"

namespace capstan {

/// Position in a stream of random numbers; saved and restored as a value. Saved in a capture, it is
/// a position within that capture's replays: `capture` refers to where their numbers come from, and
/// keeps it alive; `offset` counts from where a replay begins, and `seed` says nothing.
struct GeneratorState {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  Ref<const RefCounted> capture{};
  friend bool operator==(const GeneratorState&, const GeneratorState&) = default;
};

/// Counter-based random numbers (Philox 4x32-10): the same seed gives the same numbers on CPU and
/// GPU, eager and replayed. A handle; copies share the state. Thread-safe. In a capture the numbers
/// come from device memory: every replay draws on from where the generator then stands, exactly as
/// the eager run would, and leaves it in the same state.
class Generator {
 public:
  explicit Generator(std::uint64_t seed = kDefaultSeed, Device device = Device::cpu());

  static constexpr std::uint64_t kDefaultSeed = 67280421310721u;

  [[nodiscard]] Device device() const noexcept;
  [[nodiscard]] std::uint64_t seed() const;
  /// Restarts the sequence. While the device's current stream captures, does nothing if `seed` is
  /// the current one. @throws CaptureError  while capturing, for another seed.
  void manual_seed(std::uint64_t seed, Where where = Where::current()) const;
  /// While capturing, a state for use in captures alone: numbers drawn after it is set again are
  /// those drawn since it was saved, in each replay.
  [[nodiscard]] GeneratorState state(Where where = Where::current()) const;
  /// In the capture that saved `state`, goes back to it. In another capture, the numbers that
  /// follow are those of the last replay of the capture that saved it, which must come before;
  /// this goes on until a state of the own capture is set, which must happen before it ends.
  /// @throws ValueError unless the offset is a multiple of 4, or for a state saved in a capture
  ///   while not capturing; CaptureError while capturing for one saved outside; DeviceError for a
  ///   capture on another device.
  void set_state(GeneratorState state, Where where = Where::current()) const;

  /// Takes `words` 32-bit numbers (rounded up to a multiple of 4) for a kernel that is about to run
  /// on the current stream, or to be recorded there.
  [[nodiscard]] PhiloxArgs reserve(std::int64_t words) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// The generator that operations on `device` use unless given another.
[[nodiscard]] Generator default_generator(Device device);
/// Seeds the default generators of all devices. @throws CaptureError  as Generator::manual_seed.
void manual_seed(std::uint64_t seed, Where where = Where::current());

}  // namespace capstan

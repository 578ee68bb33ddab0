#include "framework/random/generator.h"

#include <cassert>
#include <mutex>
#include <utility>
#include <vector>

#include "framework/core/error.h"
#include "framework/memory/caching_allocator.h"
#include "framework/random/philox_state.h"
#include "framework/runtime/capture_session.h"
#include "framework/runtime/dispatch.h"
#include "framework/runtime/emulated_checks.h"
#include "framework/runtime/forbidden.h"
#include "framework/runtime/stream.h"
#include "framework/tensor/write_journal.h"

namespace capstan {
struct Generator::State : std::enable_shared_from_this<Generator::State> {
  class Captured;

  State(std::uint64_t seed, Device place) : device(place), value{seed, 0} {}

  /// Lets a trial run put the state back. Call with the mutex held, before a change.
  void journal() {
    WriteJournal* const active = WriteJournal::current();
    if (active == nullptr) return;
    active->keep_host(this, [self = shared_from_this(), before = value] {
      const std::lock_guard lock(self->mutex);
      self->value = before;
    });
  }

  const Device device;
  std::mutex mutex;
  GeneratorState value;
};

/// What one capture draws from a generator: how many words, and where its kernels find seed and
/// offset. States saved in the capture refer to it.
class Generator::State::Captured final : public ReplayPrologue {
 public:
  // On the default stream, which never captures, so that the words come from the common pool:
  // within the capture's own pool an earlier operation may have used, and would overwrite, the same
  // place.
  explicit Captured(std::shared_ptr<State> state)
      : state_(std::move(state)),
        block_(allocator(state_->device)
                   .allocate(2 * sizeof(std::uint64_t), default_stream(state_->device).state())) {}

  ~Captured() override {
    if (used_ && !state_->device.is_host()) {
      try {
        runtime(state_->device).synchronize_device();  // a replay may still read the words
      } catch (const Error&) {
        return;  // a broken device: better lose the block than hand it out again
      }
    }
    allocator(state_->device).free(block_);
  }

  /// That of `session`, made at the first call. The state is locked: streams of one capture may
  /// draw from several threads.
  [[nodiscard]] static Captured& of(const std::shared_ptr<State>& state, CaptureSession& session) {
    if (ReplayPrologue* const known = session.find_prologue(state.get())) {
      return static_cast<Captured&>(*known);
    }
    auto made = make_ref<Captured>(state);
    Captured& captured = *made;
    session.add_prologue(state.get(), std::move(made));
    return captured;
  }

  // The rest of what a capture calls needs the state locked.

  /// The next `count` numbers.
  [[nodiscard]] PhiloxArgs take(std::uint64_t count) noexcept {
    return {.offset = std::exchange(position(), position() + count),
            .captured = source_ != nullptr ? source_->words() : words()};
  }

  [[nodiscard]] GeneratorState saved() const {
    return {.offset = source_ != nullptr ? source_offset_ : drawn_,
            .capture = Ref<const RefCounted>(source_ != nullptr ? source_ : this)};
  }

  /// Goes on at `state`, saved by this capture or another one.
  void restore(const GeneratorState& state, CaptureSession& session) {
    if (state.capture.get() == this) {
      source_ = nullptr;
      drawn_ = state.offset;
      return;
    }
    const auto* const source = dynamic_cast<const Captured*>(state.capture.get());
    assert(source != nullptr);
    CAPSTAN_CHECK(source->state_->device == state_->device, DeviceError,
                  "generator.set_state: the state was saved on ", source->state_->device,
                  ", the generator is of ", state_->device,
                  "; set a state that a generator of the same device saved");
    session.retain(state.capture);
    source_ = source;
    source_offset_ = state.offset;
  }

  void capture_ends() override {
    const std::lock_guard lock(state_->mutex);
    CAPSTAN_CHECK(source_ == nullptr, CaptureError, "capture_end: the generator of ",
                  state_->device,
                  " is left at a state that another capture saved; before the capture ends, set "
                  "the state back that state() gave in it");
  }

  void announce_words(StreamState& stream) const {
    RecordedOp operation;
    operation.name = "generator state";
    operation.where = detail::call_context.where;
    operation.stream = stream.id;
    operation.writes = {{.address = words(), .bytes = 2 * sizeof(std::uint64_t)}};
    detail::check_operation(std::move(operation), stream);
  }

  void before_replay(StreamState& stream) override {
    const std::lock_guard lock(state_->mutex);
    if (!used_ && !state_->device.is_host()) {
      // What the default stream did with this memory before must be over.
      Stream(Ref<StreamState>(&stream)).wait_stream(default_stream(state_->device));
    }
    const SetPhiloxArgs args{words(), state_->value.seed, state_->value.offset};
    if (state_->device.is_gpu()) {
      stream.runtime.make_current();
      gpu::set_philox_state(args, stream);
    } else {
      if (detail::checks_operations.load(std::memory_order_relaxed)) announce_words(stream);
      cpu::submit(stream, cpu::set_philox_state, args);
    }
    used_ = true;
    state_->journal();
    state_->value.offset += drawn_;
  }

  // The outer capture takes the numbers of this one, whose kernels find theirs where they always
  // do.
  void record_replay(StreamState& stream) override {
    const std::lock_guard lock(state_->mutex);
    const PhiloxArgs numbers = of(state_, *stream.session()).take(drawn_);
    stream.session()->announce("generator state", stream, {},
                               {{.address = words(), .bytes = 2 * sizeof(std::uint64_t)}}, "");
    dispatch(state_->device, cpu::shift_philox_state, gpu::shift_philox_state,
             ShiftPhiloxArgs{words(), numbers.captured, numbers.offset});
  }

 private:
  [[nodiscard]] std::uint64_t* words() const noexcept {
    return static_cast<std::uint64_t*>(CachingAllocator::address(block_));
  }
  [[nodiscard]] std::uint64_t& position() noexcept {
    return source_ != nullptr ? source_offset_ : drawn_;
  }

  const std::shared_ptr<State> state_;
  Block* const block_;
  std::uint64_t drawn_ = 0;
  const Captured* source_ = nullptr;  // another one, kept by the session, whose numbers come next
  std::uint64_t source_offset_ = 0;
  bool used_ = false;
};

Generator::Generator(std::uint64_t seed, Device device)
    : state_(std::make_shared<State>(seed, device)) {}

Device Generator::device() const noexcept { return state_->device; }

std::uint64_t Generator::seed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->value.seed;
}

void Generator::manual_seed(std::uint64_t seed, Where where) const {
  const CallSite site(where);
  if (is_current_stream_capturing(state_->device) && seed == this->seed()) return;
  refuse_while_capturing(state_->device, Forbidden::generator_manual_seed);
  const std::lock_guard lock(state_->mutex);
  state_->journal();
  state_->value = {seed, 0};
}

GeneratorState Generator::state(Where where) const {
  const CallSite site(where);
  CaptureSession* const session = detail::current_stream_state(state_->device).session();
  const std::lock_guard lock(state_->mutex);
  if (session == nullptr) return state_->value;
  return State::Captured::of(state_, *session).saved();
}

void Generator::set_state(GeneratorState state, Where where) const {
  const CallSite site(where);
  CAPSTAN_CHECK(state.offset % 4 == 0, ValueError,
                "generator.set_state: the offset must be a multiple of 4, got ", state.offset,
                "; pass what state() returned");
  CaptureSession* const session = detail::current_stream_state(state_->device).session();
  if (!state.capture) {
    refuse_while_capturing(state_->device, Forbidden::generator_set_state);
  } else {
    CAPSTAN_CHECK(session != nullptr, ValueError,
                  "generator.set_state: the state was saved in a capture, where it is a position "
                  "within a replay; set it in a capture, or save one with state() outside");
  }
  const std::lock_guard lock(state_->mutex);
  if (session != nullptr) {
    State::Captured::of(state_, *session).restore(state, *session);
    return;
  }
  state_->journal();
  state_->value = std::move(state);
}

PhiloxArgs Generator::reserve(std::int64_t words) const {
  CAPSTAN_CHECK(words >= 0, ValueError, "generator.reserve: cannot take ", words, " numbers");
  const std::uint64_t count = (static_cast<std::uint64_t>(words) + 3) / 4 * 4;
  CaptureSession* const session = detail::current_stream_state(state_->device).session();

  const std::lock_guard lock(state_->mutex);
  if (session != nullptr) [[unlikely]]
    return State::Captured::of(state_, *session).take(count);
  state_->journal();
  const PhiloxArgs numbers{.seed = state_->value.seed, .offset = state_->value.offset};
  state_->value.offset += count;
  return numbers;
}

namespace {

// The default generators made so far and the seed of those to come.
struct Defaults {
  std::mutex mutex;
  std::vector<Generator> generators;
  std::uint64_t seed = Generator::kDefaultSeed;
};

Defaults& defaults() {
  static auto* const instance = new Defaults;  // outlives every static tensor
  return *instance;
}

}  // namespace

Generator default_generator(Device device) {
  (void)runtime(device);  // says so if there is no such device
  const std::lock_guard lock(defaults().mutex);
  for (const Generator& generator : defaults().generators) {
    if (generator.device() == device) return generator;
  }
  return defaults().generators.emplace_back(defaults().seed, device);
}

void manual_seed(std::uint64_t seed, Where where) {
  const CallSite site(where);
  const std::lock_guard lock(defaults().mutex);
  for (const Generator& generator : defaults().generators) {
    if (generator.seed() == seed) continue;
    refuse_while_capturing(generator.device(), Forbidden::manual_seed);
  }
  defaults().seed = seed;
  for (const Generator& generator : defaults().generators) generator.manual_seed(seed);
}

}  // namespace capstan

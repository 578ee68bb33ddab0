#include "framework/random/generator.h"

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
namespace {

struct WordsArgs {
  std::uint64_t* words;
  GeneratorState value;
};

void write_words(const WordsArgs& args) {
  args.words[0] = args.value.seed;
  args.words[1] = args.value.offset;
}

}  // namespace

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
/// offset.
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

  [[nodiscard]] std::uint64_t* words() const noexcept {
    return static_cast<std::uint64_t*>(CachingAllocator::address(block_));
  }

  /// Start of the next `count` words, relative to where a replay begins. The state is locked.
  [[nodiscard]] std::uint64_t take(std::uint64_t count) noexcept {
    return std::exchange(drawn_, drawn_ + count);
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
    const GeneratorState now = state_->value;
    if (!used_ && !state_->device.is_host()) {
      // What the default stream did with this memory before must be over.
      Stream(Ref<StreamState>(&stream)).wait_stream(default_stream(state_->device));
    }
    if (state_->device.is_gpu()) {
      stream.runtime.make_current();
      gpu::set_philox_state(words(), now.seed, now.offset, stream);
    } else {
      if (detail::checks_operations.load(std::memory_order_relaxed)) announce_words(stream);
      cpu::submit(stream, write_words, WordsArgs{words(), now});
    }
    used_ = true;
    state_->journal();
    state_->value.offset += drawn_;
  }

 private:
  const std::shared_ptr<State> state_;
  Block* const block_;
  std::uint64_t drawn_ = 0;
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
  refuse_while_capturing(state_->device, Forbidden::generator_manual_seed);
  const std::lock_guard lock(state_->mutex);
  state_->journal();
  state_->value = {seed, 0};
}

GeneratorState Generator::state(Where where) const {
  const CallSite site(where);
  refuse_while_capturing(state_->device, Forbidden::generator_state);
  const std::lock_guard lock(state_->mutex);
  return state_->value;
}

void Generator::set_state(GeneratorState state, Where where) const {
  const CallSite site(where);
  refuse_while_capturing(state_->device, Forbidden::generator_set_state);
  CAPSTAN_CHECK(state.offset % 4 == 0, ValueError,
                "generator.set_state: the offset must be a multiple of 4, got ", state.offset,
                "; pass what state() returned");
  const std::lock_guard lock(state_->mutex);
  state_->journal();
  state_->value = state;
}

PhiloxArgs Generator::reserve(std::int64_t words) const {
  CAPSTAN_CHECK(words >= 0, ValueError, "generator.reserve: cannot take ", words, " numbers");
  const std::uint64_t count = (static_cast<std::uint64_t>(words) + 3) / 4 * 4;
  CaptureSession* const session = detail::current_stream_state(state_->device).session();

  const std::lock_guard lock(state_->mutex);
  if (session == nullptr) [[likely]] {
    state_->journal();
    const PhiloxArgs numbers{.seed = state_->value.seed, .offset = state_->value.offset};
    state_->value.offset += count;
    return numbers;
  }
  // Looked up under the lock: streams of one capture may draw from several threads.
  auto* captured = static_cast<State::Captured*>(session->find_prologue(state_.get()));
  if (captured == nullptr) {
    auto made = make_ref<State::Captured>(state_);
    captured = made.get();
    session->add_prologue(state_.get(), std::move(made));
  }
  return {.offset = captured->take(count), .captured = captured->words()};
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
    refuse_while_capturing(generator.device(), Forbidden::manual_seed);
  }
  defaults().seed = seed;
  for (const Generator& generator : defaults().generators) generator.manual_seed(seed);
}

}  // namespace capstan

#include "framework/runtime/capture_session.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "framework/core/error.h"
#include "framework/runtime/capture_probe.h"

namespace capstan {
namespace {

// clock[i] counts what a stream has seen of member i. Beginning or forking counts as 1, so a fork
// without operations must be joined too, as with CUDA.
using Clock = std::vector<std::int64_t>;

void merge(Clock& clock, std::span<const std::int64_t> other) {
  if (clock.size() < other.size()) clock.resize(other.size(), 0);
  for (std::size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

std::int64_t at(const Clock& clock, std::size_t member) {
  return member < clock.size() ? clock[member] : 0;
}

struct Sessions {
  std::mutex mutex;
  std::unordered_map<std::uint64_t, CaptureSession*> active;
};

Sessions& sessions() {
  static auto* const instance = new Sessions;
  return *instance;
}

struct Observers {
  std::mutex mutex;
  std::vector<CaptureObserver*> all;
};

Observers& observers() {
  static auto* const instance = new Observers;
  return *instance;
}

constinit std::atomic<int> active_count{0};
constinit std::atomic<std::uint64_t> next_id{1};

}  // namespace

struct CaptureSession::Member {
  Ref<StreamState> stream;
  Clock clock;
  Clock reported;                        // what the last operation here already came after
  std::vector<std::int64_t> operations;  // [count - 2] is the operation that made the count
};

struct CaptureSession::State {
  mutable std::mutex mutex;
  std::vector<Member> members;
  Recording recording;
  std::vector<Clock> clocks;  // of each operation, itself included
  std::vector<std::pair<const void*, Ref<ReplayPrologue>>> prologues;
  std::unordered_set<const RefCounted*> known;
  std::vector<Ref<const RefCounted>> retained;
  Ref<RefCounted> newborns;

  // The origin has not seen all that this member did.
  bool is_stray(std::size_t member) const {
    return at(members[member].clock, member) > at(members.front().clock, member);
  }

  std::size_t index_of(const StreamState& stream) const {
    const auto found = std::find_if(members.begin(), members.end(),
                                    [&](const Member& m) { return m.stream.get() == &stream; });
    return static_cast<std::size_t>(found - members.begin());
  }

  // Operations of other members that `member` has come to see since its last operation, without
  // those that another of them already follows.
  std::vector<std::int64_t> predecessors(const Member& member, std::size_t self) const {
    std::vector<std::int64_t> found;
    std::vector<std::pair<std::size_t, std::int64_t>> counts;
    for (std::size_t i = 0; i < member.clock.size(); ++i) {
      const std::int64_t count = member.clock[i];
      if (count < 2 || (i != self && count <= at(member.reported, i))) continue;
      found.push_back(members[i].operations[static_cast<std::size_t>(count - 2)]);
      counts.emplace_back(i, count);
    }
    std::vector<std::int64_t> nearest;
    for (std::size_t a = 0; a < found.size(); ++a) {
      const bool followed = std::any_of(found.begin(), found.end(), [&](std::int64_t b) {
        return b != found[a] &&
               at(clocks[static_cast<std::size_t>(b)], counts[a].first) >= counts[a].second;
      });
      if (!followed) nearest.push_back(found[a]);
    }
    std::sort(nearest.begin(), nearest.end());
    return nearest;
  }

  void append(RecordedOp op, const StreamState& stream) {
    const std::size_t self = index_of(stream);
    Member& member = members[self];
    op.stream = stream.id;
    op.after = predecessors(member, self);
    member.operations.push_back(static_cast<std::int64_t>(recording.operations.size()));
    recording.operations.push_back(std::move(op));
    member.reported = member.clock;
    ++member.clock[self];
    clocks.push_back(member.clock);
  }
};

CaptureSession::CaptureSession(const Stream& origin, CaptureRequest request)
    : id_(next_id.fetch_add(1, std::memory_order_relaxed)),
      origin_(origin),
      request_(request),
      state_(std::make_unique<State>()) {}

CaptureSession::~CaptureSession() { (void)abandon(); }

Ref<CaptureSession> CaptureSession::begin(const Stream& origin, CaptureRequest request) {
  CAPSTAN_CHECK(!origin.is_default(), CaptureError,
                "capture_begin: a capture cannot run on the default stream of ", origin.device(),
                "; make another stream current, or use CaptureScope (a replay may run on it)");
  CAPSTAN_CHECK(!origin.is_capturing(), CaptureError, "capture_begin: stream ", origin.id(), " of ",
                origin.device(), " is already capturing; end that capture first");
  Ref<CaptureSession> session(new CaptureSession(origin, request));
  Member first;
  first.stream = Ref<StreamState>(&origin.state());
  first.clock = {1};
  session->state_->members.push_back(std::move(first));

  {
    const std::lock_guard lock(sessions().mutex);
    sessions().active.emplace(session->id_, session.get());
  }
  const std::lock_guard entering(origin.state().entering);
  try {
    session->builder_ = origin.state().runtime.begin_capture(origin.state(), request.mode);
  } catch (...) {
    const std::lock_guard lock(sessions().mutex);
    sessions().active.erase(session->id_);
    throw;
  }
  session->active_ = true;
  active_count.fetch_add(1, std::memory_order_acq_rel);
  origin.state().set_session(session.get());
  detail::probe_capture(detail::CapturePoint::begin);
  return session;
}

void CaptureSession::leave_streams() noexcept {
  active_ = false;
  for (Member& member : state_->members) member.stream->set_session(nullptr);
  active_count.fetch_sub(1, std::memory_order_acq_rel);
  {
    const std::lock_guard lock(sessions().mutex);
    sessions().active.erase(id_);
  }
  const std::lock_guard lock(observers().mutex);
  for (CaptureObserver* observer : observers().all) observer->capture_ended(*this);
}

// Empty if every fork came back.
std::string CaptureSession::unjoined() const {
  std::string streams;
  for (std::size_t i = 1; i < state_->members.size(); ++i) {
    if (!state_->is_stray(i)) continue;
    const Member& member = state_->members[i];
    streams += detail::concat(streams.empty() ? "" : ", ", "stream ", member.stream->id);
    if (member.operations.empty()) {
      streams += " (no operation)";
    } else {
      const RecordedOp& last =
          state_->recording.operations[static_cast<std::size_t>(member.operations.back())];
      streams += detail::concat(" (last operation: ", last.name, " at ", last.where.file_name(),
                                ":", last.where.line(), ")");
    }
  }
  if (streams.empty()) return {};
  return "forked streams were not joined: " + streams +
         "; call capture_stream.wait_stream(forked) before the capture ends";
}

void CaptureSession::visit_strays(const std::function<void(StreamState&)>& visit) const {
  for (std::size_t i = 1; i < state_->members.size(); ++i) {
    if (state_->is_stray(i)) visit(*state_->members[i].stream);
  }
}

CaptureResult CaptureSession::finish() {
  CAPSTAN_CHECK(active_, StateError, "capture_end: the capture has already ended");
  if (const std::string fault = unjoined(); !fault.empty()) {
    (void)abandon();
    throw CaptureError("capture_end: " + fault);
  }
  try {
    for (const auto& [key, prologue] : state_->prologues) prologue->capture_ends();
  } catch (...) {
    (void)abandon();
    throw;
  }
  detail::probe_capture(detail::CapturePoint::end);

  CaptureResult result;
  try {
    result.graph = origin_.state().runtime.end_capture(*this);
  } catch (...) {
    leave_streams();
    throw;
  }
  leave_streams();
  result.recording = std::move(state_->recording);
  for (auto& [key, prologue] : state_->prologues) result.prologues.push_back(std::move(prologue));
  result.retained = std::move(state_->retained);
  result.newborns = std::move(state_->newborns);
  state_->prologues.clear();
  return result;
}

std::string CaptureSession::abandon() noexcept {
  if (!active_) return {};
  std::string fault;
  const auto note = [&fault](const auto& read) noexcept {
    try {
      if (fault.empty()) fault = read();
    } catch (const std::exception&) {
      // Without memory for the text there is none; the capture ends all the same.
    }
  };
  note([this] { return unjoined(); });
  try {
    (void)origin_.state().runtime.end_capture(*this);
  } catch (const std::exception& error) {
    note([&error] { return std::string(error.what()); });
  }
  leave_streams();
  state_->prologues.clear();
  state_->retained.clear();
  return fault;
}

std::int64_t CaptureSession::operation_count() const {
  const std::lock_guard lock(state_->mutex);
  return static_cast<std::int64_t>(state_->recording.operations.size());
}

void CaptureSession::announce(const char* name, StreamState& stream, std::vector<Access> reads,
                              std::vector<Access> writes, std::string detail) {
  const std::lock_guard lock(state_->mutex);
  for (const auto* accesses : {&reads, &writes}) {
    for (const Access& access : *accesses) {
      if (access.owner == nullptr || access.pool == request_.pool) continue;
      if (state_->known.insert(access.owner).second) {
        state_->retained.emplace_back(access.owner);
      }
    }
  }
  RecordedOp op;
  op.name = name;
  op.where = detail::call_context.where;
  op.module = detail::module_path();
  op.detail = std::move(detail);
  op.reads = std::move(reads);
  op.writes = std::move(writes);
  state_->append(std::move(op), stream);
}

void CaptureSession::announce_replay(std::vector<RecordedOp> operations, StreamState& stream) {
  const std::lock_guard lock(state_->mutex);
  for (RecordedOp& op : operations) state_->append(std::move(op), stream);
}

ReplayPrologue* CaptureSession::find_prologue(const void* key) const {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [known, prologue] : state_->prologues) {
    if (known == key) return prologue.get();
  }
  return nullptr;
}

void CaptureSession::add_prologue(const void* key, Ref<ReplayPrologue> prologue) {
  const std::lock_guard lock(state_->mutex);
  state_->prologues.emplace_back(key, std::move(prologue));
}

Ref<RefCounted> CaptureSession::newborns(Ref<RefCounted> (*make)()) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->newborns) state_->newborns = make();
  return state_->newborns;
}

void CaptureSession::retain(Ref<const RefCounted> object) {
  const std::lock_guard lock(state_->mutex);
  if (state_->known.insert(object.get()).second) state_->retained.push_back(std::move(object));
}

CaptureSession::Position CaptureSession::position(const StreamState& stream) const {
  const std::lock_guard lock(state_->mutex);
  const std::size_t self = state_->index_of(stream);
  return {self, at(state_->members[self].clock, self)};
}

bool CaptureSession::precedes(Position place, std::uint64_t stream) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = std::find_if(state_->members.begin(), state_->members.end(),
                                  [&](const Member& m) { return m.stream->id == stream; });
  return found != state_->members.end() && at(found->clock, place.member) >= place.count;
}

std::vector<std::int64_t> CaptureSession::mark(StreamState& stream) {
  const std::lock_guard lock(state_->mutex);
  return state_->members[state_->index_of(stream)].clock;
}

void CaptureSession::join(StreamState& stream, std::span<const std::int64_t> clock) {
  const std::lock_guard lock(state_->mutex);
  const std::size_t self = state_->index_of(stream);
  if (self == state_->members.size()) {
    Member member;
    member.stream = Ref<StreamState>(&stream);
    member.clock.assign(self + 1, 0);
    member.clock[self] = 1;
    state_->members.push_back(std::move(member));
    stream.set_session(this);
  }
  merge(state_->members[self].clock, clock);
}

Ref<CaptureSession> CaptureSession::find(std::uint64_t id) {
  const std::lock_guard lock(sessions().mutex);
  const auto found = sessions().active.find(id);
  return found == sessions().active.end() ? Ref<CaptureSession>()
                                          : Ref<CaptureSession>(found->second);
}

CaptureStatus CaptureSession::status() const {
  return {.device = origin_.device(),
          .mode = request_.mode,
          .thread = thread_,
          .begun = begun_,
          .operations = operation_count()};
}

// Under the lock a session cannot leave the list, so another thread's does not die meanwhile.
std::optional<CaptureStatus> CaptureSession::status_of(const StreamState& stream) {
  const std::lock_guard lock(sessions().mutex);
  const CaptureSession* const session = stream.session();
  for (const auto& [id, active] : sessions().active) {
    if (active == session) return active->status();
  }
  return std::nullopt;
}

std::optional<CaptureStatus> CaptureSession::status_barring(Device device) {
  const std::lock_guard lock(sessions().mutex);
  for (const auto& [id, active] : sessions().active) {
    const bool is_own = active->thread_ == std::this_thread::get_id();
    const CaptureErrorMode mode = active->mode();
    const bool bars =
        mode == CaptureErrorMode::global || (mode == CaptureErrorMode::thread_local_ && is_own);
    if (bars && active->origin_.device().type == device.type) return active->status();
  }
  return std::nullopt;
}

std::optional<CaptureStatus> CaptureSession::status_beside(Device device) {
  const std::lock_guard lock(sessions().mutex);
  for (const auto& [id, active] : sessions().active) {
    const Device origin = active->origin_.device();
    if (origin == device || active->thread_ != std::this_thread::get_id()) continue;
    if (detail::current_stream_state(origin).session() == active) return active->status();
  }
  return std::nullopt;
}

void refuse_another_device(const char* operation, Device device) {
  if (detail::active_captures() == 0 || device.is_host()) return;
  if (detail::current_stream_state(device).session() != nullptr) return;
  const auto capture = CaptureSession::status_beside(device);
  CAPSTAN_CHECK(!capture, CaptureError, operation, ": device ", device,
                " inside capture on device ", capture->device,
                "; a graph is of one device: move the tensors there, or capture on ", device);
}

bool is_current_stream_capturing(Device device) {
  return detail::active_captures() != 0 &&
         detail::current_stream_state(device).session() != nullptr;
}

void detail::add_capture_observer(CaptureObserver* observer) {
  const std::lock_guard lock(observers().mutex);
  observers().all.push_back(observer);
}

void detail::remove_capture_observer(CaptureObserver* observer) noexcept {
  const std::lock_guard lock(observers().mutex);
  std::erase(observers().all, observer);
}

int detail::active_captures() noexcept { return active_count.load(std::memory_order_acquire); }

}  // namespace capstan

#include "graphs/captured_graph.h"

#include <mutex>
#include <unordered_set>
#include <utility>

namespace capstan {
namespace {

// Waiting for the device would break a capture of any thread, so what may still run waits here.
class Parking {
 public:
  static Parking& instance() {
    static auto* const parking = new Parking;  // graphs may be static objects
    return *parking;
  }

  void add(Captured captured) {
    const std::lock_guard lock(mutex_);
    parked_.push_back(std::move(captured));
  }

  void clear() noexcept {
    if (detail::active_captures() != 0) return;
    std::vector<Captured> leaving;
    {
      const std::lock_guard lock(mutex_);
      leaving.swap(parked_);
    }
    for (const Captured& captured : leaving) captured.pools->wait();
  }

 private:
  std::mutex mutex_;
  std::vector<Captured> parked_;
};

}  // namespace

void release(Captured captured) {
  // The CPU has already run what was replayed.
  if (captured.replays == 0 || captured.pools->own().device().is_host()) return;
  if (detail::active_captures() != 0) return Parking::instance().add(std::move(captured));
  captured.pools->wait();
}

void release_parked() noexcept { Parking::instance().clear(); }

std::vector<Storage*> written_among(const std::vector<Ref<const RefCounted>>& retained,
                                    const Recording& recording) {
  std::unordered_set<const RefCounted*> writes;
  for (const RecordedOp& operation : recording.operations) {
    for (const Access& access : operation.writes) writes.insert(access.owner);
  }
  std::vector<Storage*> written;
  for (const Ref<const RefCounted>& object : retained) {
    if (!writes.contains(object.get())) continue;
    const auto* storage = dynamic_cast<const Storage*>(object.get());
    if (storage != nullptr) written.push_back(const_cast<Storage*>(storage));
  }
  return written;
}

}  // namespace capstan

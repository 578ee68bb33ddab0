#include "framework/data/batch_worker.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "framework/core/error.h"
#include "framework/random/philox.h"

namespace capstan {

std::vector<std::int64_t> shuffled_order(std::int64_t count, std::uint64_t seed,
                                         std::uint64_t epoch) {
  // Keeps these numbers apart from those that a Generator with the same seed hands out.
  constexpr std::uint64_t kShuffleStream = std::uint64_t{1} << 63;
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::size_t last = order.size(); last > 1; --last) {
    const PhiloxBlock block = philox(seed, last, kShuffleStream | epoch);
    const std::uint64_t word = std::uint64_t{block.word[0]} << 32 | block.word[1];
    std::swap(order[last - 1], order[word % last]);
  }
  return order;
}

BatchWorker::BatchWorker(const SampleSource& source, const EpochPlan& plan)
    : source_(source), plan_(plan), remaining_(plan.batches), thread_([this] { run(); }) {}

BatchWorker::~BatchWorker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BatchWorker::offer(const Buffer& buffer) {
  {
    const std::lock_guard lock(mutex_);
    offered_.push_back(buffer);
  }
  changed_.notify_all();
}

std::optional<BatchWorker::Buffer> BatchWorker::next() {
  std::unique_lock lock(mutex_);
  if (remaining_ == 0) return std::nullopt;
  changed_.wait(lock, [this] { return !filled_.empty() || failure_ != nullptr; });
  if (filled_.empty()) std::rethrow_exception(failure_);
  const Buffer buffer = filled_.front();
  filled_.pop_front();
  --remaining_;
  return buffer;
}

std::optional<BatchWorker::Buffer> BatchWorker::wait_for_offer() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stop_ || !offered_.empty(); });
  if (stop_) return std::nullopt;
  const Buffer buffer = offered_.front();
  offered_.pop_front();
  return buffer;
}

void BatchWorker::run() noexcept {
  try {
    std::vector<std::int64_t> order;
    if (plan_.shuffle) {
      order = shuffled_order(source_.samples, plan_.seed, plan_.epoch);
    } else {
      order.resize(static_cast<std::size_t>(source_.samples));
      std::iota(order.begin(), order.end(), std::int64_t{0});
    }
    for (std::int64_t batch = 0; batch < plan_.batches; ++batch) {
      const std::optional<Buffer> buffer = wait_for_offer();
      if (!buffer) return;
      const std::int64_t first = batch * plan_.batch_size;
      fill(*buffer, order.data() + first, std::min(plan_.batch_size, source_.samples - first));
      {
        const std::lock_guard lock(mutex_);
        filled_.push_back(*buffer);
      }
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_all();
  }
}

void BatchWorker::fill(const Buffer& buffer, const std::int64_t* samples,
                       std::int64_t count) const {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t sample = samples[i];
    const std::int64_t label = source_.label_dtype == DType::uint8
                                   ? static_cast<const std::uint8_t*>(source_.labels)[sample]
                                   : static_cast<const std::int64_t*>(source_.labels)[sample];
    CAPSTAN_CHECK(label >= 0 && label < source_.classes, IndexError, "data_loader: label ", label,
                  " of sample ", sample, " is out of range [0, ", source_.classes, ")");
    buffer.labels[i] = label;

    float* const to = buffer.inputs + i * source_.values;
    if (source_.input_dtype == DType::uint8) {
      const auto* const from =
          static_cast<const std::uint8_t*>(source_.inputs) + sample * source_.values;
      for (std::int64_t v = 0; v < source_.values; ++v) to[v] = source_.of_byte[from[v]];
    } else {
      const auto* const from = static_cast<const float*>(source_.inputs) + sample * source_.values;
      for (std::int64_t v = 0; v < source_.values; ++v) {
        to[v] = (from[v] - source_.mean) / source_.stddev;
      }
    }
  }
}

}  // namespace capstan

#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "framework/core/dtype.h"

// The background side of DataLoader. It sees host memory only and calls no device function, so it
// cannot disturb a capture on another thread.
namespace capstan {

/// The samples of a data set and how they become numbers.
struct SampleSource {
  const void* inputs = nullptr;  ///< [samples, values], uint8 or float32
  const void* labels = nullptr;  ///< [samples], uint8 or int64
  DType input_dtype = DType::uint8;
  DType label_dtype = DType::uint8;
  std::int64_t samples = 0;
  std::int64_t values = 0;  ///< of one sample
  std::int64_t classes = 0;
  float mean = 0.0f;
  float stddev = 1.0f;
  std::array<float, 256> of_byte{};  ///< the number for each uint8 input
};

/// Which samples an epoch visits, in which order and in which batches.
struct EpochPlan {
  std::int64_t batch_size = 0;
  std::int64_t batches = 0;
  bool shuffle = false;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
};

/// A permutation of [0, count) that depends on seed and epoch alone.
[[nodiscard]] std::vector<std::int64_t> shuffled_order(std::int64_t count, std::uint64_t seed,
                                                       std::uint64_t epoch);

/// Fills buffers with the batches of one epoch, in order, on a thread of its own.
class BatchWorker {
 public:
  /// Room for one batch: [batch_size, values] and [batch_size].
  struct Buffer {
    float* inputs = nullptr;
    std::int64_t* labels = nullptr;
    std::size_t index = 0;  ///< for the caller
  };

  /// @p source stays valid while the worker lives.
  BatchWorker(const SampleSource& source, const EpochPlan& plan);
  /// Stops, also in the middle of an epoch.
  ~BatchWorker();
  BatchWorker(const BatchWorker&) = delete;
  BatchWorker& operator=(const BatchWorker&) = delete;

  /// Gives a buffer to fill.
  void offer(const Buffer& buffer);
  /// Waits for the next batch; nothing after the last one. Some buffer must be on offer or filled.
  /// Throws what filling it threw.
  [[nodiscard]] std::optional<Buffer> next();

 private:
  void run() noexcept;
  [[nodiscard]] std::optional<Buffer> wait_for_offer();
  void fill(const Buffer& buffer, const std::int64_t* samples, std::int64_t count) const;

  const SampleSource& source_;
  const EpochPlan plan_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Buffer> offered_;
  std::deque<Buffer> filled_;
  std::int64_t remaining_;
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace capstan

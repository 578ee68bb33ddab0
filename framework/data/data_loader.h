#pragma once

#include <cstdint>
#include <iterator>
#include <memory>

#include "framework/core/call_site.h"
#include "framework/core/device.h"
#include "framework/data/dataset.h"
#include "framework/tensor/tensor.h"

namespace capstan {

struct DataLoaderOptions {
  std::int64_t batch_size = 32;
  bool shuffle = false;    ///< visit the samples in a new order in each epoch
  bool drop_last = false;  ///< leave out a last batch that is not full
  Device device = Device::cpu();
  std::uint64_t seed = 0;  ///< of the order
  int prefetch = 2;        ///< batches assembled ahead
  bool flatten = false;    ///< inputs [batch, everything else]
  float mean = 0.0f;
  float stddev = 1.0f;
};

struct Batch {
  Tensor inputs;  ///< float32 [batch, ...] on the device of the options
  Tensor labels;  ///< int64 [batch]
};

/// Cuts a data set into batches: `for (const auto& [images, labels] : loader)`. Each loop is an
/// epoch and visits all samples once, in the given order or in one that depends on (seed, epoch)
/// alone. Inputs become (x / 255 - mean) / stddev for uint8 data and (x - mean) / stddev for
/// float32.
///
/// A background thread assembles batches in page-locked memory; the looping thread then only
/// enqueues their copies on its current stream and does not wait for them. The background thread
/// calls no device function, so the loader may be used beside a capture on another thread; within a
/// capture it is refused. One loop at a time; a loop may be left early.
class DataLoader {
 public:
  class Iterator;

  /// Keeps handles of the tensors of @p dataset, whose elements must not change meanwhile.
  /// @throws ValueError   for batch_size < 1, prefetch < 1 or stddev <= 0.
  /// @throws ShapeError   unless inputs are [N, ...] and labels [N].
  /// @throws DTypeError   unless inputs are uint8 or float32 and labels uint8 or int64.
  /// @throws DeviceError  unless the data set lies in host memory.
  explicit DataLoader(const Dataset& dataset, DataLoaderOptions options = {},
                      Where where = Where::current());
  ~DataLoader();
  DataLoader(DataLoader&&) noexcept;
  DataLoader& operator=(DataLoader&&) noexcept;

  /// Batches of one epoch.
  [[nodiscard]] std::int64_t size() const noexcept;
  /// Epochs begun so far.
  [[nodiscard]] std::int64_t epochs() const noexcept;

  /// Starts a new epoch and waits for its first batch. An earlier loop that is still open ends: its
  /// next step throws StateError. @throws IndexError for a label outside of [0, classes), here or
  /// at a later step; CaptureError while capturing.
  [[nodiscard]] Iterator begin(Where where = Where::current());
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // iterators share it
};

/// Steps through one epoch of a loader. Move-only.
class DataLoader::Iterator {
 public:
  Iterator(Iterator&& other) noexcept;
  Iterator& operator=(Iterator&& other) noexcept;
  ~Iterator();

  [[nodiscard]] const Batch& operator*() const noexcept { return batch_; }
  [[nodiscard]] const Batch* operator->() const noexcept { return &batch_; }
  Iterator& operator++();
  friend bool operator==(const Iterator& position, std::default_sentinel_t) noexcept {
    return !position.batch_.inputs.defined();
  }

 private:
  friend class DataLoader;
  Iterator(std::shared_ptr<Impl> loader, std::int64_t epoch);

  std::shared_ptr<Impl> loader_;
  std::int64_t epoch_;
  Batch batch_;  // undefined at the end
};

}  // namespace capstan

#include "framework/data/data_loader.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "framework/core/error.h"
#include "framework/data/batch_worker.h"
#include "framework/memory/pinned_buffer.h"
#include "framework/runtime/event.h"
#include "framework/runtime/forbidden.h"
#include "framework/runtime/stream.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/transfer.h"

namespace capstan {
namespace {

void check_options(const DataLoaderOptions& options) {
  CAPSTAN_CHECK(options.batch_size >= 1, ValueError,
                "data_loader: batch_size must be positive, got ", options.batch_size);
  CAPSTAN_CHECK(options.prefetch >= 1, ValueError, "data_loader: prefetch must be positive, got ",
                options.prefetch);
  CAPSTAN_CHECK(options.stddev > 0.0f, ValueError, "data_loader: stddev must be positive, got ",
                options.stddev);
}

void check_dataset(const Dataset& dataset) {
  const Tensor& inputs = dataset.inputs;
  const Tensor& labels = dataset.labels;
  CAPSTAN_CHECK(inputs.device().is_host() && labels.device().is_host(), DeviceError,
                "data_loader: the data set must lie in host memory, got inputs ", describe(inputs),
                " and labels ", describe(labels), "; the loader itself copies to its device");
  CAPSTAN_CHECK(inputs.dtype() == DType::uint8 || inputs.dtype() == DType::float32, DTypeError,
                "data_loader: inputs must be uint8 or float32, got ", inputs.dtype());
  CAPSTAN_CHECK(labels.dtype() == DType::uint8 || labels.dtype() == DType::int64, DTypeError,
                "data_loader: labels must be uint8 or int64, got ", labels.dtype());
  CAPSTAN_CHECK(inputs.rank() >= 1 && labels.rank() == 1 && inputs.size(0) == labels.size(0),
                ShapeError, "data_loader: needs inputs [N, ...] and labels [N], got ",
                inputs.shape(), " and ", labels.shape());
  CAPSTAN_CHECK(inputs.is_contiguous() && labels.is_contiguous(), ShapeError,
                "data_loader: the data set must be contiguous, got strides ", inputs.strides(),
                " and ", labels.strides(), "; call contiguous() first");
  CAPSTAN_CHECK(dataset.classes >= 1, ValueError, "data_loader: classes must be positive, got ",
                dataset.classes, "; set Dataset::classes");
}

SampleSource make_source(const Dataset& dataset, const DataLoaderOptions& options) {
  SampleSource source;
  source.inputs = dataset.inputs.raw_data();
  source.labels = dataset.labels.raw_data();
  source.input_dtype = dataset.inputs.dtype();
  source.label_dtype = dataset.labels.dtype();
  source.samples = dataset.size();
  source.values = 1;
  for (int axis = 1; axis < dataset.inputs.rank(); ++axis) {
    source.values *= dataset.inputs.size(axis);
  }
  source.classes = dataset.classes;
  source.mean = options.mean;
  source.stddev = options.stddev;
  for (std::size_t byte = 0; byte < source.of_byte.size(); ++byte) {
    const double x = static_cast<double>(byte) / 255.0;
    source.of_byte[byte] = static_cast<float>((x - double{options.mean}) / double{options.stddev});
  }
  return source;
}

}  // namespace

struct DataLoader::Impl {
  // Page-locked memory for one batch, and when the device has read it.
  struct Slot {
    Slot(Device device, std::size_t input_bytes, std::size_t label_bytes)
        : inputs(device, input_bytes), labels(device, label_bytes), copied(device) {}
    PinnedBuffer inputs;
    PinnedBuffer labels;
    Event copied;
  };

  Impl(const Dataset& data, const DataLoaderOptions& chosen)
      : dataset(data), options(chosen), source(make_source(data, chosen)) {
    const std::int64_t n = source.samples;
    const std::int64_t b = options.batch_size;
    batches = options.drop_last ? n / b : n / b + (n % b != 0);
    batch_shape = options.flatten ? Shape{0, source.values} : dataset.inputs.shape();
  }

  void refuse_in_capture() const { refuse_while_capturing(options.device, Forbidden::data_loader); }
  void make_slots();
  void offer(std::size_t index);
  void reclaim();
  [[nodiscard]] Batch next(std::int64_t epoch);

  const Dataset dataset;
  const DataLoaderOptions options;
  const SampleSource source;
  std::int64_t batches = 0;
  Shape batch_shape;  // of a batch of inputs, but for the first size
  std::vector<Slot> slots;
  std::deque<std::size_t> in_flight;  // slots whose copy may still run, oldest first
  std::int64_t epochs = 0;
  std::int64_t position = 0;            // batches of this epoch handed out
  std::unique_ptr<BatchWorker> worker;  // null between epochs
};

void DataLoader::Impl::make_slots() {
  if (!slots.empty()) return;
  const std::int64_t room = std::min(options.batch_size, source.samples);
  const auto count =
      static_cast<std::size_t>(std::min<std::int64_t>(options.prefetch, batches)) + 1;
  std::vector<Slot> made;
  made.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    made.emplace_back(options.device,
                      static_cast<std::size_t>(room * source.values) * sizeof(float),
                      static_cast<std::size_t>(room) * sizeof(std::int64_t));
  }
  slots = std::move(made);
}

void DataLoader::Impl::offer(std::size_t index) {
  const Slot& slot = slots[index];
  worker->offer({static_cast<float*>(slot.inputs.data()),
                 static_cast<std::int64_t*>(slot.labels.data()), index});
}

// Gives the worker the buffers that the device has read; waits for one only if it has none at all.
void DataLoader::Impl::reclaim() {
  if (in_flight.size() == slots.size()) detail::wait_for(slots[in_flight.front()].copied);
  while (!in_flight.empty() && detail::is_done(slots[in_flight.front()].copied)) {
    offer(in_flight.front());
    in_flight.pop_front();
  }
}

Batch DataLoader::Impl::next(std::int64_t epoch) {
  CAPSTAN_CHECK(epoch == epochs, StateError,
                "data_loader: this loop is over, since a newer one has "
                "begun; use one DataLoader for each of two loops at a time");
  if (position == batches || worker == nullptr) {
    worker.reset();
    return {};
  }
  refuse_in_capture();
  reclaim();
  const std::int64_t count =
      std::min(options.batch_size, source.samples - position * options.batch_size);
  Shape shape = batch_shape;
  shape[0] = count;
  Batch batch{empty(shape, {.dtype = DType::float32, .device = options.device}),
              empty({count}, {.dtype = DType::int64, .device = options.device})};
  const std::optional<BatchWorker::Buffer> filled = worker->next();
  if (!filled) return {};
  ++position;
  // First, so that the buffer is not lost if a copy throws.
  in_flight.push_back(filled->index);
  transfer_from_pinned(batch.inputs, slots[filled->index].inputs);
  transfer_from_pinned(batch.labels, slots[filled->index].labels);
  slots[filled->index].copied.record(current_stream(options.device));
  return batch;
}

DataLoader::DataLoader(const Dataset& dataset, DataLoaderOptions options, Where where) {
  const CallSite site(where);
  check_options(options);
  check_dataset(dataset);
  impl_ = std::make_shared<Impl>(dataset, options);
}

DataLoader::~DataLoader() = default;
DataLoader::DataLoader(DataLoader&&) noexcept = default;
DataLoader& DataLoader::operator=(DataLoader&&) noexcept = default;

std::int64_t DataLoader::size() const noexcept { return impl_->batches; }
std::int64_t DataLoader::epochs() const noexcept { return impl_->epochs; }

DataLoader::Iterator DataLoader::begin(Where where) {
  const CallSite site(where);
  impl_->refuse_in_capture();
  impl_->worker.reset();
  impl_->make_slots();
  impl_->worker = std::make_unique<BatchWorker>(
      impl_->source, EpochPlan{.batch_size = impl_->options.batch_size,
                               .batches = impl_->batches,
                               .shuffle = impl_->options.shuffle,
                               .seed = impl_->options.seed,
                               .epoch = static_cast<std::uint64_t>(impl_->epochs)});
  for (std::size_t i = 0; i < impl_->slots.size(); ++i) {
    const auto& busy = impl_->in_flight;
    if (std::find(busy.begin(), busy.end(), i) == busy.end()) impl_->offer(i);
  }
  impl_->position = 0;
  ++impl_->epochs;
  return Iterator(impl_, impl_->epochs);
}

DataLoader::Iterator::Iterator(std::shared_ptr<Impl> loader, std::int64_t epoch)
    : loader_(std::move(loader)), epoch_(epoch), batch_(loader_->next(epoch)) {}

DataLoader::Iterator::Iterator(Iterator&& other) noexcept = default;

DataLoader::Iterator& DataLoader::Iterator::operator=(Iterator&& other) noexcept {
  std::swap(loader_, other.loader_);
  std::swap(epoch_, other.epoch_);
  std::swap(batch_, other.batch_);
  return *this;
}

DataLoader::Iterator::~Iterator() {
  if (loader_ != nullptr && loader_->epochs == epoch_) loader_->worker.reset();
}

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  batch_ = Batch{};  // so that the next one can use its memory
  batch_ = loader_->next(epoch_);
  return *this;
}

}  // namespace capstan

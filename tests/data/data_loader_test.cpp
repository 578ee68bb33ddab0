#include "framework/data/data_loader.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "framework/core/error.h"
#include "framework/data/batch_worker.h"
#include "framework/memory/caching_allocator.h"
#include "framework/runtime/capture_session.h"
#include "framework/runtime/stream.h"
#include "tests/support/testing.h"

namespace capstan {
namespace {

using testing::check_close;
using testing::for_each_device;

// Sample i is the pair (i, i + 0.5), with label i.
Dataset counting(std::int64_t count) {
  std::vector<float> values;
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(i));
    values.push_back(static_cast<float>(i) + 0.5f);
    labels.push_back(i);
  }
  return {Tensor::from_vector({count, 1, 2}, values), Tensor::from_vector({count}, labels),
          std::max<std::int64_t>(count, 1)};
}

std::vector<int> labels_of_epoch(DataLoader& loader) {
  std::vector<int> all;
  for (const auto& [inputs, labels] : loader) {
    const std::vector<int> some = labels.to_vector<int>();
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

std::vector<int> count_to(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

TEST_SUITE("data/data_loader") {
  TEST_CASE("bytes become (x / 255 - mean) / stddev, labels int64, on the device asked for") {
    for_each_device([](Device device) {
      const Dataset bytes{Tensor::from_vector<std::uint8_t>({3, 2}, {0, 255, 51, 102, 153, 204}),
                          Tensor::from_vector<std::uint8_t>({3}, {2, 0, 1}), 3};
      DataLoader plain(bytes, {.batch_size = 2, .device = device});
      auto position = plain.begin();
      REQUIRE(position != plain.end());
      CHECK(position->inputs.shape() == Shape{2, 2});
      CHECK(position->inputs.device() == device);
      CHECK(position->inputs.dtype() == DType::float32);
      CHECK(position->labels.dtype() == DType::int64);
      check_close(position->inputs, {0.0, 1.0, 0.2, 0.4}, 1e-7);
      check_close(position->labels, {2, 0}, 0.0);
      ++position;
      check_close((*position).inputs, {0.6, 0.8}, 1e-7);
      check_close(position->labels, {1}, 0.0);
      ++position;
      CHECK(position == plain.end());

      DataLoader scaled(bytes, {.batch_size = 3, .device = device, .mean = 0.2f, .stddev = 0.5f});
      check_close(scaled.begin()->inputs, {-0.4, 1.6, 0.0, 0.4, 0.8, 1.2}, 1e-6);
    });
  }

  TEST_CASE("floats become (x - mean) / stddev, and flatten joins the axes of a sample") {
    DataLoader kept(counting(2), {.batch_size = 2, .mean = 1.0f, .stddev = 2.0f});
    const auto batch = kept.begin();
    CHECK(batch->inputs.shape() == Shape{2, 1, 2});
    CHECK(batch->inputs.to_vector<float>() == std::vector<float>{-0.5f, -0.25f, 0.0f, 0.25f});
    DataLoader flat(counting(2), {.batch_size = 2, .flatten = true});
    CHECK(flat.begin()->inputs.shape() == Shape{2, 2});
  }

  TEST_CASE("every sample comes once and in order; the odd last batch is kept or dropped") {
    for_each_device([](Device device) {
      DataLoader keeps(counting(10), {.batch_size = 4, .device = device});
      CHECK(keeps.size() == 3);
      CHECK(labels_of_epoch(keeps) == count_to(10));
      DataLoader drops(counting(10), {.batch_size = 4, .drop_last = true, .device = device});
      CHECK(drops.size() == 2);
      CHECK(labels_of_epoch(drops) == count_to(8));
      DataLoader exact(counting(8), {.batch_size = 4, .device = device});
      CHECK(exact.size() == 2);
      CHECK(labels_of_epoch(exact) == count_to(8));
    });
  }

  TEST_CASE("a batch larger than the data set, and an empty data set, are fine") {
    DataLoader one(counting(3), {.batch_size = 100});
    CHECK(one.size() == 1);
    CHECK(labels_of_epoch(one) == count_to(3));
    DataLoader none(counting(3), {.batch_size = 100, .drop_last = true});
    CHECK(none.size() == 0);
    CHECK(labels_of_epoch(none).empty());
    const Dataset empty{Tensor::from_vector<float>({0, 2}, {}),
                        Tensor::from_vector<std::int64_t>({0}, {}), 1};
    DataLoader nothing(empty);
    CHECK(nothing.size() == 0);
    CHECK(labels_of_epoch(nothing).empty());
  }

  TEST_CASE("shuffling permutes, differs between epochs and repeats for a seed") {
    DataLoader loader(counting(100), {.batch_size = 7, .shuffle = true, .seed = 5});
    const std::vector<int> first = labels_of_epoch(loader);
    const std::vector<int> second = labels_of_epoch(loader);
    CHECK(loader.epochs() == 2);
    CHECK_FALSE((first == count_to(100)));
    CHECK_FALSE((first == second));
    for (std::vector<int> sorted : {first, second}) {
      std::sort(sorted.begin(), sorted.end());
      CHECK((sorted == count_to(100)));
    }
    DataLoader again(counting(100), {.batch_size = 13, .shuffle = true, .seed = 5});
    CHECK((labels_of_epoch(again) == first));
    DataLoader other(counting(100), {.batch_size = 7, .shuffle = true, .seed = 6});
    CHECK_FALSE((labels_of_epoch(other) == first));
  }

  TEST_CASE("the shuffled order is fixed on all platforms and even") {
    CHECK(shuffled_order(0, 1, 0).empty());
    CHECK(shuffled_order(1, 1, 0) == std::vector<std::int64_t>{0});
    CHECK(shuffled_order(8, 0, 0) == std::vector<std::int64_t>{4, 3, 7, 2, 0, 1, 5, 6});
    // Each of the six orders of three comes about equally often.
    std::vector<int> seen(27);
    for (std::uint64_t epoch = 0; epoch < 6000; ++epoch) {
      const std::vector<std::int64_t> order = shuffled_order(3, 9, epoch);
      ++seen[static_cast<std::size_t>(order[0] * 9 + order[1] * 3 + order[2])];
    }
    for (const std::size_t code : {5, 7, 11, 15, 19, 21}) {
      CHECK(seen[code] > 850);
      CHECK(seen[code] < 1150);
    }
  }

  TEST_CASE("a loop may be left early, and the next one is a whole epoch") {
    for_each_device([](Device device) {
      DataLoader loader(counting(50), {.batch_size = 2, .device = device, .prefetch = 3});
      for (int round = 0; round < 5; ++round) {
        int steps = 0;
        for (const Batch& batch : loader) {
          CHECK(batch.labels.size(0) == 2);
          if (++steps == round) break;
        }
      }
      CHECK(labels_of_epoch(loader) == count_to(50));
      CHECK(loader.epochs() == 6);
      const auto unfinished = loader.begin();
      const DataLoader moved = std::move(loader);
      CHECK(moved.epochs() == 7);
    });
  }

  TEST_CASE("a newer loop ends an older one, which says so") {
    DataLoader loader(counting(10), {.batch_size = 2});
    auto older = loader.begin();
    const auto newer = loader.begin();
    CHECK_THROWS_WITH_AS(++older, doctest::Contains("data_loader: this loop is over"), StateError);
    CHECK(newer->labels.to_vector<int>() == std::vector<int>{0, 1});
  }

  TEST_CASE("batches stay as they are while later ones are assembled") {
    for_each_device([](Device device) {
      DataLoader loader(counting(64), {.batch_size = 4, .device = device, .prefetch = 1});
      std::vector<Batch> kept;
      for (const Batch& batch : loader) kept.push_back(batch);
      REQUIRE(kept.size() == 16);
      for (std::size_t i = 0; i < kept.size(); ++i) {
        const double first = 4.0 * static_cast<double>(i);
        check_close(kept[i].labels, {first, first + 1, first + 2, first + 3}, 0.0);
        CHECK(kept[i].inputs.to_vector<float>().at(7) == static_cast<float>(first) + 3.5f);
      }
    });
  }

  TEST_CASE("a bad label found in the background reaches the loop") {
    Dataset data = counting(10);
    data.classes = 7;
    DataLoader loader(data, {.batch_size = 2});
    std::vector<int> before;
    const auto loop = [&] {
      for (const Batch& batch : loader) before.push_back(batch.labels.to_vector<int>().front());
    };
    CHECK_THROWS_WITH_AS(
        loop(), doctest::Contains("data_loader: label 7 of sample 7 is out of range [0, 7)"),
        IndexError);
    CHECK(before == std::vector<int>{0, 2, 4});
    CHECK_THROWS_AS(loop(), IndexError);
  }

  TEST_CASE("options and data sets that make no sense are refused") {
    const Dataset good = counting(4);
    const auto makes = [](const Dataset& data, DataLoaderOptions options = {}) {
      (void)DataLoader(data, options);
    };
    const auto says = [](const char* text) { return doctest::Contains(text); };
    CHECK_THROWS_WITH_AS(makes(good, {.batch_size = 0}), says("batch_size must be positive, got 0"),
                         ValueError);
    CHECK_THROWS_WITH_AS(makes(good, {.prefetch = 0}), says("prefetch must be positive, got 0"),
                         ValueError);
    CHECK_THROWS_WITH_AS(makes(good, {.stddev = 0.0f}), says("stddev must be positive, got 0"),
                         ValueError);
    CHECK_THROWS_WITH_AS(makes({good.inputs, good.labels, 0}), says("classes must be positive"),
                         ValueError);
    CHECK_THROWS_WITH_AS(makes({good.inputs, counting(3).labels, 4}),
                         says("needs inputs [N, ...] and labels [N], got [4, 1, 2] and [3]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(makes({good.labels, good.labels, 4}),
                         says("inputs must be uint8 or float32, got int64"), DTypeError);
    CHECK_THROWS_WITH_AS(makes({good.inputs, good.inputs, 4}),
                         says("labels must be uint8 or int64, got float32"), DTypeError);
  }

  TEST_CASE("a loop within a capture is refused; one beside a capture runs and disturbs nothing") {
    const Stream stream = Stream::create(Device::cpu());
    const GraphPool pool = graph_pool_handle(Device::cpu(), "loader");
    const Ref<CaptureSession> session = CaptureSession::begin(stream, {.pool = pool.id()});
    DataLoader loader(counting(40), {.batch_size = 3, .shuffle = true});
    {
      const StreamGuard current(stream);
      CHECK_THROWS_WITH_AS((void)loader.begin(),
                           doctest::Contains("a replay would not fetch the next batch"),
                           CaptureError);
    }
    CHECK(loader.epochs() == 0);
    std::vector<int> seen;
    std::thread([&] { seen = labels_of_epoch(loader); }).join();
    std::sort(seen.begin(), seen.end());
    CHECK((seen == count_to(40)));
    CHECK(session->operation_count() == 0);
    const CaptureResult result = session->finish();
    CHECK(result.graph->node_count() == 0);
    CHECK(pool.stats().reserved_bytes == 0);
  }
}

}  // namespace capstan

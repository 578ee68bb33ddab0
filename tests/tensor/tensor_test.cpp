#include "framework/tensor/tensor.h"

#include <doctest/doctest.h>

#include "framework/memory/caching_allocator.h"
#include "framework/tensor/factory.h"
#include "framework/tensor/op_scope.h"
#include "framework/tensor/transfer.h"
#include "framework/tensor/view.h"
#include "framework/tensor/write_journal.h"
#include "tests/support/testing.h"

using namespace capstan;

TEST_SUITE("tensor/tensor") {
  TEST_CASE("host values come back unchanged, in every dtype") {
    testing::for_each_device([](Device device) {
      const auto round_trip = [&]<typename T>(const std::vector<T>& values) {
        const Tensor x = Tensor::from_vector({2, 2}, values, device);
        CHECK(x.dtype() == dtype_of<T>);
        CHECK(x.device() == device);
        CHECK(x.to_vector<T>() == values);
      };
      round_trip(std::vector<float>{1.5f, -2.0f, 0.0f, 3e30f});
      round_trip(std::vector<double>{1.5, -2.0, 0.0, 3e300});
      round_trip(std::vector<std::int64_t>{1, -2, 0, std::int64_t{1} << 60});
      round_trip(std::vector<std::int32_t>{1, -2, 0, 1 << 30});
      round_trip(std::vector<std::uint8_t>{1, 2, 0, 255});
      round_trip(std::vector<bool>{true, false, false, true});
    });
  }

  TEST_CASE("item reads the only element and refuses more") {
    const Tensor x = Tensor::from_vector({1, 1}, std::vector<float>{2.5f});
    CHECK(x.item() == 2.5);
    CHECK(x.item<std::int64_t>() == 2);
    const Tensor y = zeros({2, 3});
    CHECK_THROWS_WITH_AS((void)y.item(),
                         doctest::Contains("item: needs exactly one element, got shape [2, 3]"),
                         ShapeError);
  }

  TEST_CASE("wrong counts, dtypes and sizes are refused with their values") {
    CHECK_THROWS_WITH_AS((void)Tensor::from_vector({2, 2}, std::vector<float>{1.0f}),
                         doctest::Contains("shape [2, 2] needs 4 values, got 1"), ShapeError);
    CHECK_THROWS_WITH_AS((void)zeros({2}).data<double>(),
                         doctest::Contains("holds float32, not float64"), DTypeError);
    CHECK_THROWS_WITH_AS((void)empty({2, -1}), doctest::Contains("must not be negative"),
                         ShapeError);
    CHECK_THROWS_WITH_AS((void)empty({std::int64_t{1} << 40, std::int64_t{1} << 40}),
                         doctest::Contains("too many elements"), ShapeError);
    CHECK_THROWS_WITH_AS((void)Tensor().shape(), doctest::Contains("is undefined"), StateError);
  }

  TEST_CASE("printing shows nesting, dtype and place, and cuts long axes") {
    const Tensor x = Tensor::from_vector({2, 2}, std::vector<float>{1, 2.5, -3, 0});
    CHECK(x.to_string() == "[[1., 2.5],\n [-3., 0.]]");
    CHECK(detail::concat(x) == "[[1., 2.5],\n [-3., 0.]] float32[2, 2] on cpu");
    CHECK(zeros({1001}).to_string() == "[0., 0., 0., ..., 0., 0., 0.]");
    CHECK(Tensor::from_vector({2}, std::vector<bool>{true, false}).to_string() == "[true, false]");
    CHECK(zeros({2, 0}).to_string() == "[[],\n []]");
    CHECK(detail::concat(Tensor()) == "undefined");
  }

  TEST_CASE("wrapped memory is used in place and released at the end") {
    std::vector<float> values{1, 2, 3};
    bool released = false;
    {
      const Tensor x = from_blob(values.data(), {3}, {}, [&] { released = true; });
      const Tensor part = view::slice(x, 0, 1, 3, 1);
      values[2] = 7;
      CHECK(part.to_vector<float>() == std::vector<float>{2, 7});
      CHECK_FALSE(released);
    }
    CHECK(released);
  }

  TEST_CASE("reading values is refused while capturing, and the capture goes on") {
    testing::for_each_device([](Device device) {
      const Tensor x = zeros({2}, {.device = device});
      const Stream stream = Stream::create(device);
      const GraphPool pool = graph_pool_handle(device);
      const Ref<CaptureSession> session = CaptureSession::begin(stream, {.pool = pool.id()});
      {
        const StreamGuard guard(stream);
        CHECK(is_current_stream_capturing(device));
        CHECK_THROWS_WITH_AS((void)x.to_vector<float>(),
                             doctest::Contains("to_vector: not possible while"), CaptureError);
        CHECK_THROWS_WITH_AS((void)Tensor::from_vector({1}, std::vector<float>{1}, device),
                             doctest::Contains("make the tensor before the capture"), CaptureError);
        const Tensor y = zeros({4}, {.device = device});
        CHECK(y.storage()->pool() == pool.id());
      }
      const CaptureResult result = session->finish();
      CHECK(result.recording.operations.size() == 1);
      CHECK(result.recording.operations[0].name == "zeros");
    });
  }

  TEST_CASE("a recording keeps foreign storages alive and names the line") {
    const Stream stream = Stream::create(Device::cpu());
    const GraphPool pool = graph_pool_handle(Device::cpu());
    Tensor x = zeros({2});
    const Storage* const storage = x.storage().get();
    const Ref<CaptureSession> session = CaptureSession::begin(stream, {.pool = pool.id()});
    {
      const StreamGuard guard(stream);
      const Tensor y = empty({2});
      const CallSite site(Where::current());
      transfer(y, x);
    }
    const CaptureResult result = session->finish();
    CHECK(storage->use_count() == 2);
    const RecordedOp& op = result.recording.operations.at(0);
    CHECK(op.name == "copy");
    CHECK(std::string(op.where.file_name()).find("tensor_test.cpp") != std::string::npos);
    CHECK(op.reads.at(0).bytes == 8);
    CHECK(op.detail == "float32[2]");
  }
}

TEST_SUITE("tensor/view") {
  const auto counting = [] {
    std::vector<float> values(24);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    return Tensor::from_vector({2, 3, 4}, values);
  };

  TEST_CASE("transpose, slice and select walk the same memory") {
    const Tensor x = counting();
    const Tensor t = view::transpose(x, 0, 2);
    CHECK(t.shape() == Shape{4, 3, 2});
    CHECK_FALSE(t.is_contiguous());
    CHECK(view::select(view::select(t, 0, 1), 0, 2).to_vector<float>() ==
          std::vector<float>{9, 21});
    CHECK(view::slice(view::select(x, 0, -1), 1, 1, 100, 2).to_vector<float>() ==
          std::vector<float>{13, 15, 17, 19, 21, 23});
    CHECK(view::slice(x, 0, 2, 1, 1).numel() == 0);
    CHECK(view::slice(x, 2, -1, 4, 1).to_vector<float>() ==
          std::vector<float>{3, 7, 11, 15, 19, 23});
  }

  TEST_CASE("reshape is a view where strides allow one, and only there") {
    const Tensor x = counting();
    CHECK(view::reshape(x, {6, -1})->shape() == Shape{6, 4});
    const Tensor part = view::slice(x, 0, 0, 2, 1);
    const Tensor columns = view::slice(x, 2, 0, 2, 1);  // [2, 3, 2], strides [12, 4, 1]
    CHECK(view::reshape(columns, {6, 2})->to_vector<float>() == columns.to_vector<float>());
    CHECK(view::reshape(columns, {2, 3, 1, 2})->to_vector<float>() == columns.to_vector<float>());
    CHECK_FALSE(view::reshape(columns, {12}).has_value());
    CHECK_FALSE(view::reshape(view::transpose(x, 0, 1), {24}).has_value());
    CHECK(view::reshape(view::expand(view::slice(x, 2, 0, 1, 1), {2, 3, 4}), {6, 4})->shape() ==
          Shape{6, 4});
    CHECK_THROWS_WITH_AS((void)view::reshape(x, {5, -1}),
                         doctest::Contains("cannot make [5, -1] of [2, 3, 4] with 24 elements"),
                         ShapeError);
  }

  TEST_CASE("expand repeats without memory and refuses what is no one") {
    const Tensor row = Tensor::from_vector({1, 2}, std::vector<float>{1, 2});
    const Tensor rows = view::expand(row, {3, -1});
    CHECK(rows.strides() == Strides{0, 1});
    CHECK(rows.to_vector<float>() == std::vector<float>{1, 2, 1, 2, 1, 2});
    CHECK_THROWS_WITH_AS((void)view::expand(row, {3, 3}),
                         doctest::Contains("cannot expand [1, 2] to [3, 3]"), ShapeError);
  }

  TEST_CASE("squeeze, unsqueeze and permute change the axes alone") {
    const Tensor x = counting();
    CHECK(view::unsqueeze(x, -1).shape() == Shape{2, 3, 4, 1});
    CHECK(view::squeeze_all(view::unsqueeze(view::unsqueeze(x, 0), 2)).shape() == x.shape());
    CHECK(view::squeeze(x, 0).shape() == x.shape());
    CHECK(view::permute(x, {2, 0, 1}).shape() == Shape{4, 2, 3});
    CHECK_THROWS_AS((void)view::permute(x, {0, 0, 1}), ValueError);
    CHECK_THROWS_WITH_AS((void)view::select(x, 1, 3), doctest::Contains("index 3 is out of range"),
                         IndexError);
  }

  TEST_CASE("a view outside of its storage is refused") {
    CHECK_THROWS_WITH_AS((void)view::as_strided(counting(), {5, 5}, {5, 1}, 0),
                         doctest::Contains("reach outside of a storage of 24 elements"),
                         ShapeError);
  }
}

TEST_SUITE("tensor/write_journal") {
  const auto write = [](const Tensor& x, const std::vector<float>& values) {
    const OpScope scope("test", {}, {&x});
    StreamState& stream = detail::current_stream_state(x.device());
    stream.runtime.copy(x.raw_data(), values.data(), values.size() * sizeof(float), stream);
  };

  TEST_CASE("a trial run leaves no trace in memory that existed before") {
    testing::for_each_device([&](Device device) {
      const Tensor x = Tensor::from_vector({2}, std::vector<float>{1, 2}, device);
      const std::int64_t version = x.storage()->version();
      int host = 5;
      {
        WriteJournal journal;
        CHECK(WriteJournal::current() == &journal);
        write(x, {8, 9});
        write(x, {6, 7});
        journal.keep_host(&host, [&] { host = 5; });
        host = 6;
        CHECK(x.to_vector<float>() == std::vector<float>{6, 7});
      }
      CHECK(WriteJournal::current() == nullptr);
      CHECK(x.to_vector<float>() == std::vector<float>{1, 2});
      CHECK(x.storage()->version() == version);
      CHECK(host == 5);
    });
  }

  TEST_CASE("a committed journal keeps what was written") {
    const Tensor x = zeros({1});
    {
      WriteJournal journal;
      write(x, {3});
      journal.commit();
      CHECK(WriteJournal::current() == nullptr);
    }
    CHECK(x.item() == 3.0);
  }

  TEST_CASE("an outer journal sees the writes of an inner one") {
    const Tensor x = zeros({1});
    {
      WriteJournal outer;
      {
        WriteJournal inner;
        write(x, {3});
        inner.commit();
      }
      CHECK(x.item() == 3.0);
    }
    CHECK(x.item() == 0.0);
  }
}

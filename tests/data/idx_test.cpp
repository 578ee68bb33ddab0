#include "framework/data/idx.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "framework/core/error.h"
#include "tests/data/temporary_directory.h"

namespace capstan {
namespace {

using testing::Bytes;
using testing::idx_bytes;
using testing::TemporaryDirectory;

Bytes contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

std::string failure(const std::string& path, int rank) {
  try {
    (void)read_idx(path, rank);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_SUITE("data/idx") {
  TEST_CASE("reads plain and compressed files alike, whatever their names") {
    const TemporaryDirectory directory;
    const Bytes file = idx_bytes({2, 1, 3}, {1, 2, 3, 250, 251, 252});
    for (const std::string& path :
         {directory.write("plain.gz", file), directory.write_gzip("compressed", file)}) {
      const IdxArray array = read_idx(path, 3);
      CHECK(array.shape == Shape{2, 1, 3});
      CHECK(array.values == Bytes{1, 2, 3, 250, 251, 252});
    }
  }

  TEST_CASE("sizes are big-endian, and an empty array is fine") {
    const TemporaryDirectory directory;
    const IdxArray long_one = read_idx(directory.write("a", idx_bytes({259}, Bytes(259, 7))), 1);
    CHECK(long_one.shape == Shape{259});
    CHECK(read_idx(directory.write("b", idx_bytes({0}, {})), 1).values.empty());
  }

  TEST_CASE("a file larger than one read is whole") {
    const TemporaryDirectory directory;
    Bytes values(3'000'001);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i * 7);
    const std::string path = directory.write_gzip("big", idx_bytes({3'000'001}, values));
    CHECK((read_idx(path, 1).values == values));
  }

  TEST_CASE("a missing file and a directory are named") {
    const TemporaryDirectory directory;
    contains(failure(directory.path() + "/none", 1),
             "read_idx: cannot open " + directory.path() + "/none: No such file");
    CHECK_THROWS_AS((void)read_idx(directory.path(), 1), DataError);
  }

  TEST_CASE("a wrong beginning says what it must be and what it is") {
    const TemporaryDirectory directory;
    contains(failure(directory.write("text", {'h', 'e', 'l', 'l', 'o'}), 3),
             "is not an IDX file, expected it to begin with 00 00 08 03, got 68 65 6c 6c");
    contains(failure(directory.write("empty", {}), 1), "got nothing");
    contains(failure(directory.write("short", {0, 0}), 1), "got 00 00;");
    Bytes floats = idx_bytes({1}, {0, 0, 0, 0});
    floats[2] = 0x0d;
    contains(failure(directory.write("floats", floats), 1),
             "must hold unsigned bytes (element type 08), got element type 0d");
    contains(failure(directory.write("labels", idx_bytes({1}, {0})), 3),
             "must have 3 axes, got 1; images have 3 axes and labels 1");
  }

  TEST_CASE("truncation shows, plain and compressed, in sizes and in elements") {
    const TemporaryDirectory directory;
    const Bytes file = idx_bytes({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    const auto head = [](const Bytes& bytes, std::size_t count) {
      return Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
    };
    contains(failure(directory.write("sizes", head(file, 9)), 3),
             "is truncated within its sizes, expected 3 of them, got 1");
    contains(failure(directory.write("elements", head(file, 21)), 3),
             "is truncated, expected 8 elements for sizes [2, 2, 2], got 5");
    const Bytes squeezed = contents(directory.write_gzip("whole", file));
    for (std::size_t count = 12; count < squeezed.size(); ++count) {
      CHECK_THROWS_AS((void)read_idx(directory.write("cut", head(squeezed, count)), 3), DataError);
    }
    contains(failure(directory.write_gzip("inside", head(file, 21)), 3), "got 5");
  }

  TEST_CASE("a damaged checksum and bytes behind the end show") {
    const TemporaryDirectory directory;
    Bytes file = idx_bytes({3}, {1, 2, 3});
    Bytes squeezed = contents(directory.write_gzip("good", file));
    squeezed[squeezed.size() - 6] ^= 1;
    contains(failure(directory.write("bad", squeezed), 1), "is damaged or truncated: ");
    file.push_back(4);
    contains(failure(directory.write("more", file), 1),
             "has trailing bytes after the 3 elements for sizes [3]");
    contains(failure(directory.write_gzip("more.gz", file), 1), "has trailing bytes");
  }

  TEST_CASE("absurd sizes are refused without asking for the memory") {
    const TemporaryDirectory directory;
    contains(failure(directory.write("a", idx_bytes({~0u, ~0u, ~0u}, {1})), 3),
             "has sizes beyond 1 TiB");
    contains(failure(directory.write("b", idx_bytes({~0u}, {1})), 1), "got 1;");
    CHECK_THROWS_AS((void)read_idx(directory.path(), 0), ValueError);
  }
}

}  // namespace capstan

#include "framework/data/idx.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iomanip>
#include <memory>
#include <span>
#include <sstream>
#include <type_traits>
#include <utility>

#include "framework/core/error.h"

namespace capstan {
namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;
// Memory grows with what was really read, so a damaged size cannot ask for all of it at once.
constexpr std::size_t kChunk = std::size_t{1} << 20;
constexpr std::int64_t kLargestArray = std::int64_t{1} << 40;

std::string in_hex(std::span<const std::uint8_t> bytes) {
  std::ostringstream out;
  out << std::hex << std::setfill('0');
  const char* separator = "";
  for (const std::uint8_t byte : bytes) {
    out << separator << std::setw(2) << int{byte};
    separator = " ";
  }
  return std::move(out).str();
}

// zlib passes a file that is not compressed through unchanged.
class File {
 public:
  explicit File(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    CAPSTAN_CHECK(file_ != nullptr, DataError, "read_idx: cannot open ", path, ": ",
                  std::strerror(errno), "; check the path");
  }

  // Reads up to `bytes.size()` bytes; fewer only at the end of the file.
  [[nodiscard]] std::size_t read(std::span<std::uint8_t> bytes) {
    const int count = gzread(file_.get(), bytes.data(), static_cast<unsigned>(bytes.size()));
    int code = Z_OK;
    const char* const words = gzerror(file_.get(), &code);
    // An early end of the compressed data is not an error of gzread, only of the stream.
    CAPSTAN_CHECK(count >= 0 && (code == Z_OK || code == Z_STREAM_END), DataError,
                  "read_idx: ", path_,
                  " is damaged or truncated: ", code == Z_ERRNO ? std::strerror(errno) : words,
                  "; fetch the file again");
    return static_cast<std::size_t>(count);
  }

 private:
  struct Close {
    void operator()(gzFile file) const noexcept { gzclose_r(file); }
  };

  const std::string& path_;
  std::unique_ptr<std::remove_pointer_t<gzFile>, Close> file_;
};

Shape read_header(File& file, const std::string& path, int rank) {
  std::array<std::uint8_t, 4> magic{};
  const std::size_t got = file.read(magic);
  CAPSTAN_CHECK(got == magic.size() && magic[0] == 0 && magic[1] == 0, DataError,
                "read_idx: ", path, " is not an IDX file, expected it to begin with 00 00 08 0",
                rank, ", got ", got == 0 ? "nothing" : in_hex(std::span(magic).first(got)),
                "; check that this is the right file");
  CAPSTAN_CHECK(magic[2] == kUnsignedByte, DataError, "read_idx: ", path,
                " must hold unsigned bytes (element type 08), got element type ",
                in_hex(std::span(magic).subspan(2, 1)), "; convert it to bytes");
  CAPSTAN_CHECK(magic[3] == rank, DataError, "read_idx: ", path, " must have ", rank,
                rank == 1 ? " axis, got " : " axes, got ", int{magic[3]},
                "; images have 3 axes and labels 1: check that the files are not swapped");

  Shape shape;
  std::int64_t elements = 1;
  for (int axis = 0; axis < rank; ++axis) {
    std::array<std::uint8_t, 4> bytes{};
    CAPSTAN_CHECK(file.read(bytes) == bytes.size(), DataError, "read_idx: ", path,
                  " is truncated within its sizes, expected ", rank, " of them, got ", axis,
                  "; fetch the file again");
    const std::int64_t size = std::int64_t{bytes[0]} << 24 | std::int64_t{bytes[1]} << 16 |
                              std::int64_t{bytes[2]} << 8 | std::int64_t{bytes[3]};
    shape.push_back(size);
    CAPSTAN_CHECK(size == 0 || elements <= kLargestArray / size, DataError, "read_idx: ", path,
                  " has sizes beyond 1 TiB, got ", shape, "; fetch the file again");
    elements *= size;
  }
  return shape;
}

}  // namespace

IdxArray read_idx(const std::string& path, int rank, Where where) {
  const CallSite site(where);
  CAPSTAN_CHECK(rank >= 1 && rank <= kMaxRank, ValueError, "read_idx: rank must be 1 to ", kMaxRank,
                ", got ", rank);
  File file(path);
  IdxArray array;
  array.shape = read_header(file, path, rank);

  const auto expected = static_cast<std::size_t>(array.shape.numel());
  std::size_t got = 0;
  while (got < expected) {
    array.values.resize(std::min(expected, got + kChunk));
    const std::size_t wanted = array.values.size() - got;
    const std::size_t count = file.read(std::span(array.values).subspan(got));
    got += count;
    CAPSTAN_CHECK(count == wanted, DataError, "read_idx: ", path, " is truncated, expected ",
                  expected, " elements for sizes ", array.shape, ", got ", got,
                  "; fetch the file again");
  }
  // Also makes zlib verify the checksum, which comes last.
  std::uint8_t beyond = 0;
  CAPSTAN_CHECK(file.read(std::span(&beyond, 1)) == 0, DataError, "read_idx: ", path,
                " has trailing bytes after the ", expected, " elements for sizes ", array.shape,
                "; fetch the file again");
  return array;
}

}  // namespace capstan

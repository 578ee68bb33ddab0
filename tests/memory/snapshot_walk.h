#pragma once

#include <cstdint>
#include <string>

namespace capstan::testing {

inline std::int64_t occurrences(const std::string& text, const std::string& part) {
  std::int64_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

/// The number that follows `key` from `at` on, which moves behind the key; -1 if there is none.
inline std::int64_t number_after(const std::string& text, const char* key, std::size_t& at) {
  at = text.find(key, at);
  if (at == std::string::npos) return -1;
  at += std::char_traits<char>::length(key);
  return std::stoll(text.substr(at, 20));
}

/// The segments of a snapshot, walked block by block; `gaps` between neighbours must be 0.
struct Walked {
  std::int64_t reserved = 0;
  std::int64_t handed = 0;
  std::int64_t gaps = 0;
  std::int64_t segments = 0;
};

/// Of a snapshot with at least one segment.
inline Walked walk_of(const std::string& json) {
  Walked walked;
  const std::size_t begin = json.find("\"segments\":[{");
  const std::string all = json.substr(begin, json.find("\"pinned\":{", begin) - begin);
  for (std::size_t at = all.find("\"blocks\":["); at != std::string::npos;
       at = all.find("\"blocks\":[", at)) {
    ++walked.segments;
    const std::size_t end = all.find(']', at);
    std::int64_t next = 0;
    const std::string blocks = all.substr(at, end - at);
    for (std::size_t i = 0;;) {
      const std::int64_t address = number_after(blocks, "\"address\":", i);
      if (address < 0) break;
      const std::int64_t bytes = number_after(blocks, "\"bytes\":", i);
      walked.gaps += next != 0 && address != next;
      next = address + bytes;
      i = blocks.find("\"state\":\"", i) + 9;
      const bool unmapped = blocks.compare(i, 8, "unmapped") == 0;
      walked.reserved += unmapped ? 0 : bytes;
      walked.handed += unmapped || blocks.compare(i, 4, "free") == 0 ? 0 : bytes;
    }
    at = end;
  }
  return walked;
}

}  // namespace capstan::testing

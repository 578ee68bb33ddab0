#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

// Which bytes of emulated devices hold values. Not thread-safe: the emulation's lock is held.
namespace capstan::emulated {

inline constexpr std::uint8_t kPoison = 0xDB;

enum class Content : std::uint8_t { unwritten, freed, written };

/// Memory of the devices by its content, and page-locked host memory.
class MemoryMap {
 public:
  void add_device(const void* address, std::size_t bytes);
  void add_pinned(const void* address, std::size_t bytes);
  /// Returns its bytes, 0 if it is unknown.
  std::size_t remove(const void* address);

  [[nodiscard]] bool is_device(const void* address) const { return kind_of(address) == 1; }
  /// True unless the memory is of a device or page-locked.
  [[nodiscard]] bool is_pageable(const void* address) const { return kind_of(address) == 0; }

  /// Ignores what is not memory of a device.
  void set(std::uintptr_t begin, std::uintptr_t end, Content content);
  /// Content of the first byte in the range that is not written, if there is one.
  [[nodiscard]] std::optional<Content> first_without_value(std::uintptr_t begin,
                                                           std::uintptr_t end) const;

 private:
  struct Region {
    std::size_t bytes;
    int kind;  // 1: device, 2: page-locked
  };
  struct Piece {
    std::uintptr_t end;
    Content content;
  };
  [[nodiscard]] int kind_of(const void* address) const;
  void split(std::uintptr_t address);

  std::map<std::uintptr_t, Region> regions_;
  std::map<std::uintptr_t, Piece> pieces_;  // of device memory, without gaps within a region
};

}  // namespace capstan::emulated

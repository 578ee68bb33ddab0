#include "framework/runtime/cpu_pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace capstan::cpu {
namespace {

void report(const char* call) noexcept {
  std::fprintf(stderr, "capstan: %s failed during cleanup: %s\n", call, std::strerror(errno));
}

}  // namespace

void* reserve_addresses(std::size_t bytes) noexcept {
  // One page more than needed, so that a range on the boundary of a page lies within.
  void* const all =
      mmap(nullptr, bytes + kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(all);
  const std::size_t before = (kPageBytes - start % kPageBytes) % kPageBytes;
  auto* const address = static_cast<std::byte*>(all) + before;
  if (before != 0 && munmap(all, before) != 0) report("munmap");
  if (munmap(address + bytes, kPageBytes - before) != 0) report("munmap");
  return address;
}

void release_addresses(void* address, std::size_t bytes) noexcept {
  if (munmap(address, bytes) != 0) report("munmap");
}

bool map_pages(void* address, std::size_t bytes) noexcept {
  return mprotect(address, bytes, PROT_READ | PROT_WRITE) == 0;
}

void unmap_pages(void* address, std::size_t bytes) noexcept {
  // A fresh mapping in place of the old one: unlike mprotect it frees the memory.
  if (mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
      MAP_FAILED) {
    report("mmap");
  }
}

}  // namespace capstan::cpu

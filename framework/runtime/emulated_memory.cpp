#include "framework/runtime/emulated_memory.h"

#include <algorithm>
#include <iterator>

namespace capstan::emulated {
namespace {

std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

}  // namespace

void MemoryMap::add_device(const void* address, std::size_t bytes) {
  regions_[number(address)] = {bytes, 1};
  pieces_[number(address)] = {number(address) + bytes, Content::unwritten};
}

void MemoryMap::add_pinned(const void* address, std::size_t bytes) {
  regions_[number(address)] = {bytes, 2};
}

std::size_t MemoryMap::remove(const void* address) {
  const auto found = regions_.find(number(address));
  if (found == regions_.end()) return 0;
  const std::size_t bytes = found->second.bytes;
  pieces_.erase(pieces_.lower_bound(found->first), pieces_.lower_bound(found->first + bytes));
  regions_.erase(found);
  return bytes;
}

int MemoryMap::kind_of(const void* address) const {
  const auto after = regions_.upper_bound(number(address));
  if (after == regions_.begin()) return 0;
  const auto& [begin, region] = *std::prev(after);
  return number(address) < begin + region.bytes ? region.kind : 0;
}

void MemoryMap::split(std::uintptr_t address) {
  const auto after = pieces_.upper_bound(address);
  if (after == pieces_.begin()) return;
  const auto found = std::prev(after);
  if (found->first == address || found->second.end <= address) return;
  pieces_.emplace_hint(after, address, found->second);
  found->second.end = address;
}

void MemoryMap::set(std::uintptr_t begin, std::uintptr_t end, Content content) {
  if (begin >= end || kind_of(reinterpret_cast<const void*>(begin)) != 1) return;
  split(begin);
  split(end);
  const auto first = pieces_.find(begin);
  pieces_.erase(std::next(first), pieces_.lower_bound(end));
  first->second = {end, content};
  if (first != pieces_.begin()) {
    const auto before = std::prev(first);
    if (before->second.end == begin && before->second.content == content &&
        !regions_.contains(begin)) {
      before->second.end = end;
      pieces_.erase(first);
    }
  }
}

std::optional<Content> MemoryMap::first_without_value(std::uintptr_t begin,
                                                      std::uintptr_t end) const {
  auto at = pieces_.upper_bound(begin);
  if (at != pieces_.begin()) --at;
  for (; at != pieces_.end() && at->first < end; ++at) {
    if (at->second.end > begin && at->second.content != Content::written) return at->second.content;
  }
  return std::nullopt;
}

}  // namespace capstan::emulated

#include "framework/memory/memory_snapshot.h"

#include <cstdint>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <string_view>

#include "framework/core/error.h"
#include "framework/memory/allocator_impl.h"

namespace capstan {
namespace {

// "<" is escaped too, so that the text may stand inside of a script element.
std::string json_string(std::string_view text) {
  std::ostringstream out;
  out << '"' << std::hex << std::setfill('0');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out << '\\' << c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == '<') {
      out << "\\u" << std::setw(4) << static_cast<int>(static_cast<unsigned char>(c));
    } else {
      out << c;
    }
  }
  out << '"';
  return std::move(out).str();
}

void write_stats(std::ostream& out, const PoolStats& stats) {
  out << "\"allocated_bytes\":" << stats.allocated_bytes
      << ",\"reserved_bytes\":" << stats.reserved_bytes
      << ",\"requested_bytes\":" << stats.requested_bytes << ",\"blocks\":" << stats.blocks
      << ",\"segments\":" << stats.segments
      << ",\"peak_allocated_bytes\":" << stats.peak_allocated_bytes
      << ",\"peak_reserved_bytes\":" << stats.peak_reserved_bytes;
}

void write_place(std::ostream& out, const char* operation, const Where& where) {
  if (operation != nullptr) out << ",\"operation\":" << json_string(operation);
  if (where.line() == 0) return;
  out << ",\"file\":" << json_string(where.file_name()) << ",\"line\":" << where.line();
}

const char* state_of(const Block* block) {
  if (block->hole) return "unmapped";
  if (block->free) return "free";
  return block->awaiting ? "awaiting_free" : "in_use";
}

void write_block(std::ostream& out, const Block* block, const AllocationSite* site) {
  out << "{\"address\":" << reinterpret_cast<std::uintptr_t>(block->address)
      << ",\"bytes\":" << block->bytes << ",\"requested\":" << block->requested << ",\"state\":\""
      << state_of(block) << "\",\"stream\":" << block->stream;
  if (site != nullptr && !block->free) {
    write_place(out, site->operation, site->where);
    if (!site->module.empty()) out << ",\"module\":" << json_string(site->module);
  }
  out << '}';
}

void write_event(std::ostream& out, const MemoryEvent& event) {
  out << "{\"action\":\"" << event.action
      << "\",\"address\":" << reinterpret_cast<std::uintptr_t>(event.address)
      << ",\"bytes\":" << event.bytes << ",\"stream\":" << event.stream
      << ",\"pool\":" << event.pool << ",\"microseconds\":" << event.microseconds;
  write_place(out, event.operation, event.where);
  out << '}';
}

}  // namespace

std::string CachingAllocator::snapshot() const {
  std::ostringstream out;
  const std::lock_guard lock(impl_->mutex);
  out << "{\"device\":" << json_string(detail::concat(impl_->runtime.device())) << ",\"total\":{";
  write_stats(out, impl_->total);
  out << "},\"awaiting_bytes\":" << impl_->deferred.bytes() << ",\"limit\":";
  if (impl_->limit) {
    out << *impl_->limit;
  } else {
    out << "null";
  }
  out << ",\"pools\":[";
  const char* comma = "";
  for (const auto& pool : impl_->pools) {
    out << comma << "{\"id\":" << pool->id() << ",\"name\":" << json_string(pool->name)
        << ",\"use_count\":" << pool->use_count << ',';
    write_stats(out, pool->stats());
    out << '}';
    comma = ",";
  }
  out << "],\"segments\":[";
  comma = "";
  for (const auto& pool : impl_->pools) {
    for (const Block* first : pool->segments()) {
      out << comma << "{\"address\":" << reinterpret_cast<std::uintptr_t>(first->address)
          << ",\"pool\":" << pool->id() << ",\"small\":" << (first->small ? "true" : "false")
          << ",\"growable\":" << (first->growable ? "true" : "false") << ",\"blocks\":[";
      for (const Block* block = first; block != nullptr; block = block->next) {
        if (block->hole && block->next == nullptr) break;  // room to grow
        if (block != first) out << ',';
        write_block(out, block, impl_->history.site(block));
      }
      out << "]}";
      comma = ",";
    }
  }
  const PinnedStats pinned = impl_->pinned.stats();
  out << "],\"pinned\":{\"allocated_bytes\":" << pinned.allocated_bytes
      << ",\"reserved_bytes\":" << pinned.reserved_bytes
      << ",\"awaiting_bytes\":" << pinned.awaiting_bytes << ",\"blocks\":[";
  comma = "";
  for (const PinnedAllocator::BlockReport& block : impl_->pinned.report()) {
    out << comma << "{\"address\":" << reinterpret_cast<std::uintptr_t>(block.address)
        << ",\"bytes\":" << block.bytes << ",\"requested\":" << block.requested << ",\"state\":\""
        << block.state << "\"}";
    comma = ",";
  }
  out << "]},\"history\":[";
  comma = "";
  for (const MemoryEvent& event : impl_->history.events()) {
    out << comma;
    write_event(out, event);
    comma = ",";
  }
  out << "]}";
  return std::move(out).str();
}

void CachingAllocator::record_history(std::size_t max_events) {
  const std::lock_guard lock(impl_->mutex);
  impl_->history.start(max_events);
}

void CachingAllocator::name_allocation(const Block* block, const char* operation) {
  if (block == nullptr) return;
  const std::lock_guard lock(impl_->mutex);
  impl_->history.written(block, operation);
}

std::string memory_snapshot(Device device) { return allocator(device).snapshot(); }

void write_memory_snapshot(const std::string& path, Device device, Where where) {
  const CallSite site(where);
  const std::string json = memory_snapshot(device);
  std::ofstream file(path, std::ios::binary);
  file << (path.ends_with(".html") ? detail::snapshot_page(json) : json);
  file.close();
  CAPSTAN_CHECK(file, DataError, "write_memory_snapshot: cannot write \"", path,
                "\"; is the directory there and writable?");
}

}  // namespace capstan

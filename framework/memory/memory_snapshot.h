#pragma once

#include <string>

#include "framework/core/call_site.h"
#include "framework/core/device.h"

namespace capstan {

/// What the allocator of `device` holds, as JSON: totals, pools, segments with their blocks (state,
/// sizes, stream and, since `record_history`, operation, module and user's line), blocks of
/// page-locked memory and the history. Free memory that no stream owns has stream 0. What a
/// growable segment has given back between its blocks is "unmapped"; the room at its end is left
/// out.
[[nodiscard]] std::string memory_snapshot(Device device = Device::cpu());

/// Writes `memory_snapshot` to a file: if the path ends in ".html", as a page that draws it in any
/// browser, with nothing to load from elsewhere. @throws DataError if the file cannot be written.
void write_memory_snapshot(const std::string& path, Device device = Device::cpu(),
                           Where where = Where::current());

namespace detail {
/// The page, with the snapshot in it.
[[nodiscard]] std::string snapshot_page(const std::string& json);
}  // namespace detail

}  // namespace capstan

#include <array>
#include <fstream>
#include <string_view>
#include <unordered_map>

#include "framework/core/error.h"
#include "graphs/graph.h"

namespace capstan {
namespace {

constexpr std::array kStreamColours{"#cfe2f3", "#f9cb9c", "#d9ead3", "#ead1dc",
                                    "#fff2cc", "#d0e0e3", "#d9d2e9", "#eeeeee"};

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string_view base_name(std::string_view path) {
  return path.substr(path.find_last_of("/\\") + 1);  // npos + 1 is 0
}

std::int64_t bytes_of(const std::vector<Access>& accesses) {
  std::int64_t bytes = 0;
  for (const Access& access : accesses) bytes += access.bytes;
  return bytes;
}

std::string label_of(const RecordedOp& operation) {
  std::string label = operation.name;
  if (!operation.detail.empty()) label += "\n" + operation.detail;
  label += detail::concat("\nreads ", bytes_of(operation.reads), " B, writes ",
                          bytes_of(operation.writes), " B");
  if (!operation.graph.empty()) label += "\ngraph " + operation.graph;
  if (!operation.module.empty()) label += "\n" + operation.module;
  if (operation.where.line() != 0) {
    label +=
        detail::concat("\n", base_name(operation.where.file_name()), ":", operation.where.line());
  }
  return label;
}

}  // namespace

std::string Graph::to_dot(Where where) const {
  const CallSite site(where);
  const std::vector<RecordedOp>& operations = recording(where).operations;
  std::unordered_map<std::uint64_t, std::size_t> colours;  // of streams, as they appear

  std::string dot = "digraph " + quoted(name()) + " {\n";
  dot += "  node [shape=box, style=\"rounded,filled\", fontname=\"monospace\"];\n";
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const RecordedOp& operation = operations[i];
    const std::size_t colour = colours.try_emplace(operation.stream, colours.size()).first->second;
    dot +=
        detail::concat("  n", i, " [label=", quoted(label_of(operation)), ", fillcolor=\"",
                       kStreamColours[colour % kStreamColours.size()],
                       "\", tooltip=", quoted(detail::concat("stream ", operation.stream)), "];\n");
  }
  for (std::size_t i = 0; i < operations.size(); ++i) {
    for (const std::int64_t before : operations[i].after) {
      dot += detail::concat("  n", before, " -> n", i, ";\n");
    }
  }
  return dot + "}\n";
}

void Graph::debug_dump(const std::string& path, Where where) const {
  const CallSite site(where);
  const std::string dot = to_dot(where);
  std::ofstream file(path);
  file << dot << std::flush;
  CAPSTAN_CHECK(file, DataError, "debug_dump: cannot write \"", path,
                "\"; check that the folder exists and is writable");
}

}  // namespace capstan

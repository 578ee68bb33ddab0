#include "framework/core/error.h"

#include <string_view>
#include <vector>

namespace capstan {
namespace {

std::string with_context(const std::string& message) {
  std::string text;
  if (const std::string path = detail::module_path(); !path.empty()) {
    text += "in " + path + ": ";
  }
  text += message;
  const Where& where = detail::call_context.where;
  if (where.line() != 0) {
    text += " (at " + std::string(where.file_name()) + ":" + std::to_string(where.line()) + ")";
  }
  return text;
}

}  // namespace

Error::Error(const std::string& message) : std::runtime_error(with_context(message)) {}

std::string detail::module_path() {
  std::vector<const std::string*> names;
  for (const ModuleFrame* frame = call_context.module; frame != nullptr; frame = frame->parent) {
    if (!frame->name->empty()) names.push_back(frame->name);
  }
  std::string path;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    if (!path.empty()) path += '.';
    path += **name;
  }
  return path;
}

}  // namespace capstan

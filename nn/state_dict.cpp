#include "nn/state_dict.h"

#include <unordered_map>
#include <unordered_set>

#include "autograd/grad_mode.h"
#include "framework/runtime/forbidden.h"

namespace capstan::nn {
namespace {

struct Copy {
  Tensor to;
  Tensor from;
};

void append_name(std::string& list, const std::string& name) {
  if (!list.empty()) list += ", ";
  list += name;
}

void check_names(const char* operation, const std::string& missing, const std::string& unexpected) {
  if (missing.empty() && unexpected.empty()) return;
  std::string text;
  if (!missing.empty()) text += ", missing " + missing;
  if (!unexpected.empty()) text += ", unexpected " + unexpected;
  throw ValueError(detail::concat(operation, ": the names do not match", text,
                                  "; compare with the names of state_dict()"));
}

void check_fit(const char* operation, const std::string& name, const Tensor& to,
               const Tensor& from) {
  CAPSTAN_CHECK(from.defined(), ValueError, operation, ": ", name, " is undefined");
  CAPSTAN_CHECK(from.shape() == to.shape(), ShapeError, operation, ": ", name, " needs shape ",
                to.shape(), ", got ", from.shape());
  CAPSTAN_CHECK(from.dtype() == to.dtype(), DTypeError, operation, ": ", name, " needs ",
                to.dtype(), ", got ", from.dtype());
  refuse_while_capturing(to.device(), Forbidden::load_state_dict);
  refuse_while_capturing(from.device(), Forbidden::load_state_dict);
}

}  // namespace

void copy_state(const char* operation, const NamedTensors& targets, const StateDict& state,
                bool strict) {
  std::unordered_map<std::string, Tensor> given;
  for (const auto& [name, tensor] : state) {
    CAPSTAN_CHECK(given.emplace(name, tensor).second, ValueError, operation, ": ", name,
                  " is given twice");
  }

  std::vector<Copy> copies;
  std::unordered_set<std::string> known;
  std::string missing;
  for (const auto& [name, tensor] : targets) {
    known.insert(name);
    if (const auto found = given.find(name); found != given.end()) {
      copies.push_back({tensor, found->second});
    } else {
      append_name(missing, name);
    }
  }
  std::string unexpected;
  for (const auto& [name, tensor] : state) {
    if (!known.contains(name)) append_name(unexpected, name);
  }
  if (strict) check_names(operation, missing, unexpected);
  for (const auto& [name, tensor] : targets) {
    if (const auto found = given.find(name); found != given.end()) {
      check_fit(operation, name, tensor, found->second);
    }
  }

  const NoGradGuard no_grad;
  for (const Copy& copy : copies) copy.to.copy_(copy.from);
}

}  // namespace capstan::nn

#pragma once

#include <source_location>
#include <string>

namespace capstan {

/// Where the user called from. Every public function takes one as its last, defaulted parameter.
using Where = std::source_location;

namespace detail {

/// One level of the module path, living on the stack of `nn::Module::operator()`.
struct ModuleFrame {
  const std::string* name;
  const ModuleFrame* parent;
};

/// What errors and recordings say about the caller; one for each thread.
struct CallContext {
  Where where{};
  const ModuleFrame* module = nullptr;
};

inline constinit thread_local CallContext call_context{};

/// "net.fc1", outermost first; empty outside of any module.
[[nodiscard]] std::string module_path();

}  // namespace detail

/// Names the user's line for errors and recordings while it lives. The outermost one on a thread
/// wins, so a library function that calls another keeps the line of the user.
class [[nodiscard]] CallSite {
 public:
  explicit CallSite(const Where& where) noexcept
      : outermost_(detail::call_context.where.line() == 0) {
    if (outermost_) detail::call_context.where = where;
  }
  ~CallSite() {
    if (outermost_) detail::call_context.where = Where{};
  }
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;

 private:
  bool outermost_;
};

/// Replaces the current line and puts it back: backward runs under the line of its forward.
class [[nodiscard]] CallSiteOverride {
 public:
  explicit CallSiteOverride(const Where& where) noexcept : saved_(detail::call_context.where) {
    detail::call_context.where = where;
  }
  ~CallSiteOverride() { detail::call_context.where = saved_; }
  CallSiteOverride(const CallSiteOverride&) = delete;
  CallSiteOverride& operator=(const CallSiteOverride&) = delete;

 private:
  Where saved_;
};

/// Adds `name` to the module path of this thread while it lives. An empty name adds nothing.
class [[nodiscard]] ModuleScope {
 public:
  explicit ModuleScope(const std::string& name) noexcept
      : frame_{&name, detail::call_context.module} {
    detail::call_context.module = &frame_;
  }
  ~ModuleScope() { detail::call_context.module = frame_.parent; }
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  detail::ModuleFrame frame_;
};

}  // namespace capstan

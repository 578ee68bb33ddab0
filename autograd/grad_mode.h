#pragma once

namespace capstan {

namespace detail {
inline constinit thread_local bool grad_mode = true;
}

/// True while the calling thread records operations for backward.
[[nodiscard]] inline bool grad_enabled() noexcept { return detail::grad_mode; }

/// Sets whether operations are recorded for backward, and puts the old mode back. One thread.
class [[nodiscard]] GradMode {
 public:
  explicit GradMode(bool enabled) noexcept : saved_(detail::grad_mode) {
    detail::grad_mode = enabled;
  }
  ~GradMode() { detail::grad_mode = saved_; }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool saved_;
};

/// No operation is recorded for backward while it lives.
class [[nodiscard]] NoGradGuard : GradMode {
 public:
  NoGradGuard() noexcept : GradMode(false) {}
};

}  // namespace capstan

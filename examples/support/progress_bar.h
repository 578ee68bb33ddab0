#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

// A bar that redraws one line of a terminal; plain lines, and fewer, where there is no terminal.
namespace example {

/// Seconds since it was made.
class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

/// Numbers beside the bar, averages over what is done.
struct Progress {
  double loss = 0.0;
  double accuracy = 0.0;  ///< in [0, 1]
};

class ProgressBar {
 public:
  /// `steps` steps in all; `title` comes first on each line.
  ProgressBar(std::string title, std::int64_t steps) : title_(std::move(title)), steps_(steps) {}

  /// True a few times a second: time to fetch the numbers and `show` them.
  [[nodiscard]] bool is_due() const {
    return watch_.seconds() - shown_at_ >= (is_terminal_ ? 0.2 : 5.0);
  }

  void show(std::int64_t step, std::int64_t samples, const Progress& progress) {
    shown_at_ = watch_.seconds();
    const double per_second = static_cast<double>(samples) / shown_at_;
    const double left = shown_at_ / static_cast<double>(step) * static_cast<double>(steps_ - step);
    if (is_terminal_) {
      constexpr std::int64_t kWidth = 24;
      const auto filled = static_cast<std::size_t>(kWidth * step / steps_);
      std::string bar(filled, '#');
      bar.resize(kWidth, '.');
      std::printf("\r%s [%s] ", title_.c_str(), bar.c_str());
    } else {
      std::printf("%s ", title_.c_str());
    }
    std::printf("%lld/%lld  loss %.4f  accuracy %5.2f %%  %.0f samples/s", as_printed(step),
                as_printed(steps_), progress.loss, 100.0 * progress.accuracy, per_second);
    if (step < steps_) std::printf("  %.0f s left", left);
    std::printf(is_terminal_ ? "\033[K" : "\n");
    std::fflush(stdout);
  }

  /// Shows the final numbers and begins a new line.
  void finish(std::int64_t samples, const Progress& progress) {
    show(steps_, samples, progress);
    if (is_terminal_) std::printf("\n");
  }

 private:
  static long long as_printed(std::int64_t value) { return static_cast<long long>(value); }

  std::string title_;
  std::int64_t steps_;
  Stopwatch watch_;
  double shown_at_ = 0.0;
  bool is_terminal_ = isatty(STDOUT_FILENO) == 1;
};

}  // namespace example

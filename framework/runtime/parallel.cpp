#include "framework/runtime/parallel.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

#include "framework/core/error.h"

namespace capstan::cpu {
namespace {

constexpr int kMaxThreads = 256;
// About 50 us: longer than the gap between two kernels of a replay, shorter than anyone notices.
constexpr int kSpins = 2000;

inline void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

struct Job {
  RangeFunction function;
  const void* body;
  std::int64_t count;
  std::int64_t step;
};

// One worker's mailbox. The owner of the pool writes `job`, then raises `wanted`; the worker
// answers by raising `done` to the same number.
struct alignas(64) Worker {
  Job job{};
  int part = 0;
  std::atomic<std::uint32_t> wanted{0};
  std::atomic<std::uint32_t> done{0};
};

thread_local bool inside_parallel = false;

void run_part(const Job& job, int part) {
  const std::int64_t begin = part * job.step;
  const std::int64_t end = std::min(job.count, begin + job.step);
  if (begin < end) job.function(job.body, begin, end);
}

void work(Worker& worker) {
  inside_parallel = true;
  std::uint32_t seen = 0;
  for (;;) {
    for (int spin = 0; spin < kSpins && worker.wanted.load(std::memory_order_acquire) == seen;
         ++spin) {
      pause();
    }
    worker.wanted.wait(seen, std::memory_order_acquire);
    ++seen;
    run_part(worker.job, worker.part);
    worker.done.store(seen, std::memory_order_release);
  }
}

int initial_threads() noexcept {
  if (const char* text = std::getenv("CAPSTAN_NUM_THREADS")) {
    const int wanted = std::atoi(text);
    if (wanted >= 1 && wanted <= kMaxThreads) return wanted;
  }
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(processors, 1, kMaxThreads);
}

// Lives until the process ends; its threads are detached and sleep then.
class Pool {
 public:
  [[nodiscard]] int threads() const noexcept { return threads_.load(std::memory_order_relaxed); }
  void set_threads(int count) noexcept { threads_.store(count, std::memory_order_relaxed); }

  void run(const Job& job, int parts) {
    if (busy_.exchange(true, std::memory_order_acquire)) {
      for (int part = 0; part < parts; ++part) run_part(job, part);
      return;
    }
    start_workers(parts - 1);
    for (int i = 0; i + 1 < parts; ++i) {
      Worker& worker = *workers_[static_cast<std::size_t>(i)];
      worker.job = job;
      worker.part = i + 1;
      worker.wanted.fetch_add(1, std::memory_order_release);
      worker.wanted.notify_one();
    }
    inside_parallel = true;
    run_part(job, 0);
    inside_parallel = false;
    for (int i = 0; i + 1 < parts; ++i) {
      Worker& worker = *workers_[static_cast<std::size_t>(i)];
      const std::uint32_t wanted = worker.wanted.load(std::memory_order_relaxed);
      int spin = 0;
      while (worker.done.load(std::memory_order_acquire) != wanted) {
        // With more threads than processors the worker may need this one.
        if (++spin < kSpins) {
          pause();
        } else {
          std::this_thread::yield();
        }
      }
    }
    busy_.store(false, std::memory_order_release);
  }

 private:
  void start_workers(int count) {
    for (; started_ < count; ++started_) {
      workers_[static_cast<std::size_t>(started_)] = new Worker;
      std::thread(work, std::ref(*workers_[static_cast<std::size_t>(started_)])).detach();
    }
  }

  std::atomic<int> threads_{initial_threads()};
  std::atomic<bool> busy_{false};
  int started_ = 0;  // guarded by busy_, as are the workers
  Worker* workers_[kMaxThreads] = {};
};

Pool& pool() {
  static auto* const instance = new Pool;
  return *instance;
}

}  // namespace

int num_threads() noexcept { return pool().threads(); }

void set_num_threads(int count) {
  CAPSTAN_CHECK(count >= 1 && count <= kMaxThreads, ValueError,
                "set_num_threads: count must be in [1, ", kMaxThreads, "], got ", count);
  pool().set_threads(count);
}

void parallel_ranges(std::int64_t count, std::int64_t grain, RangeFunction function,
                     const void* body) {
  if (count <= 0) return;
  const std::int64_t ranges = std::max<std::int64_t>(1, count / std::max<std::int64_t>(1, grain));
  const int parts = static_cast<int>(std::min<std::int64_t>(ranges, pool().threads()));
  const Job job{function, body, count, (count + parts - 1) / parts};
  if (parts == 1) {
    function(body, 0, count);
  } else if (inside_parallel) {
    for (int part = 0; part < parts; ++part) run_part(job, part);
  } else {
    pool().run(job, parts);
  }
}

}  // namespace capstan::cpu

#include <algorithm>
#include <cmath>

#include "framework/core/dtype_visit.h"
#include "ops/cpu/loop.h"
#include "ops/kernels.h"

namespace capstan::cpu {
namespace {

/// Calls `body(entry, begin, end)` over all elements of all parameters as if they were one array,
/// so that threads share big and small parameters evenly.
template <typename Body>
void for_each_parameter(const ParameterList& list, const Body& body) {
  std::int64_t total = 0;
  for (int i = 0; i < list.count; ++i) total += list.entries[i].numel;
  parallel_for(total, kCheapGrain, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t first = 0;
    for (int i = 0; i < list.count && first < end; ++i) {
      const ParameterEntry& entry = list.entries[i];
      const std::int64_t from = std::max<std::int64_t>(begin - first, 0);
      const std::int64_t to = std::min(end - first, entry.numel);
      if (from < to) body(entry, from, to);
      first += entry.numel;
    }
  });
}

template <typename T>
void sgd_with(const SgdArgs& args) {
  using C = Compute<T>;
  const C rate = static_cast<C>(args.hyper[0]);
  const C momentum = static_cast<C>(args.hyper[1]);
  const C decay = static_cast<C>(args.hyper[2]);
  const C sign = args.maximize ? C{-1} : C{1};
  for_each_parameter(args.list,
                     [&](const ParameterEntry& entry, std::int64_t begin, std::int64_t end) {
                       T* p = static_cast<T*>(entry.parameter);
                       const T* g = static_cast<const T*>(entry.grad);
                       T* v = static_cast<T*>(entry.state1);
                       if (v == nullptr) {
#pragma GCC ivdep
                         for (std::int64_t i = begin; i < end; ++i)
                           p[i] = static_cast<T>(p[i] - rate * (sign * g[i] + decay * p[i]));
                       } else if (args.nesterov) {
#pragma GCC ivdep
                         for (std::int64_t i = begin; i < end; ++i) {
                           const C d = sign * g[i] + decay * p[i];
                           const C speed = momentum * v[i] + d;
                           v[i] = static_cast<T>(speed);
                           p[i] = static_cast<T>(p[i] - rate * (d + momentum * speed));
                         }
                       } else {
#pragma GCC ivdep
                         for (std::int64_t i = begin; i < end; ++i) {
                           const C speed = momentum * v[i] + (sign * g[i] + decay * p[i]);
                           v[i] = static_cast<T>(speed);
                           p[i] = static_cast<T>(p[i] - rate * speed);
                         }
                       }
                     });
  if (args.list.advance_step) ++*args.step;
}

template <typename T>
void adam_with(const AdamArgs& args) {
  using C = Compute<T>;
  const double t = static_cast<double>(*args.step + 1);
  const double rate = args.hyper[0];
  const double beta1 = args.hyper[1];
  const double beta2 = args.hyper[2];
  const double decay = args.hyper[4];
  const C keep1 = static_cast<C>(beta1);
  const C take1 = static_cast<C>(1.0 - beta1);
  const C keep2 = static_cast<C>(beta2);
  const C take2 = static_cast<C>(1.0 - beta2);
  const C size = static_cast<C>(rate / (1.0 - std::pow(beta1, t)));
  const C root_scale = static_cast<C>(1.0 / std::sqrt(1.0 - std::pow(beta2, t)));
  const C epsilon = static_cast<C>(args.hyper[3]);
  const C sign = args.maximize ? C{-1} : C{1};
  const C coupled = args.decoupled ? C{0} : static_cast<C>(decay);
  const C shrink = args.decoupled ? static_cast<C>(1.0 - rate * decay) : C{1};
  for_each_parameter(args.list, [&](const ParameterEntry& entry, std::int64_t begin,
                                    std::int64_t end) {
    T* p = static_cast<T*>(entry.parameter);
    const T* grad = static_cast<const T*>(entry.grad);
    T* m = static_cast<T*>(entry.state1);
    T* v = static_cast<T*>(entry.state2);
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      const C g = sign * grad[i] + coupled * p[i];
      const C mean = keep1 * m[i] + take1 * g;
      const C square = keep2 * v[i] + take2 * g * g;
      m[i] = static_cast<T>(mean);
      v[i] = static_cast<T>(square);
      p[i] =
          static_cast<T>(shrink * p[i] - size * mean / (std::sqrt(square) * root_scale + epsilon));
    }
  });
  if (args.list.advance_step) ++*args.step;
}

}  // namespace

void sgd(const SgdArgs& args) {
  visit_floating(args.dtype, "sgd", [&]<typename T>() { sgd_with<T>(args); });
}

void adam(const AdamArgs& args) {
  visit_floating(args.dtype, "adam", [&]<typename T>() { adam_with<T>(args); });
}

}  // namespace capstan::cpu

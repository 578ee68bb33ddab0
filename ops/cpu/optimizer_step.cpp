#include <algorithm>
#include <cmath>

#include "framework/core/dtype_visit.h"
#include "ops/cpu/parameter_loop.h"

namespace capstan::cpu {
namespace {

/// NaN wins.
template <typename C>
C larger(C a, C b) {
  return b > a || b != b ? b : a;
}

template <typename T>
void sgd_with(const SgdArgs& args) {
  using C = Compute<T>;
  const C rate = static_cast<C>(args.hyper[0]);
  const C momentum = static_cast<C>(args.hyper[1]);
  const C decay = static_cast<C>(args.hyper[2]);
  const C take = *args.step == 0 ? C{1} : static_cast<C>(1.0 - args.hyper[3]);
  const C sign = args.maximize ? C{-1} : C{1};
  run_step(args.list, args.step,
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
                 const C speed = momentum * v[i] + take * d;
                 v[i] = static_cast<T>(speed);
                 p[i] = static_cast<T>(p[i] - rate * (d + momentum * speed));
               }
             } else {
#pragma GCC ivdep
               for (std::int64_t i = begin; i < end; ++i) {
                 const C speed = momentum * v[i] + take * (sign * g[i] + decay * p[i]);
                 v[i] = static_cast<T>(speed);
                 p[i] = static_cast<T>(p[i] - rate * speed);
               }
             }
           });
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
  run_step(args.list, args.step,
           [&](const ParameterEntry& entry, std::int64_t begin, std::int64_t end) {
             T* p = static_cast<T*>(entry.parameter);
             const T* grad = static_cast<const T*>(entry.grad);
             T* m = static_cast<T*>(entry.state1);
             T* v = static_cast<T*>(entry.state2);
             if (T* w = static_cast<T*>(entry.state3)) {
#pragma GCC ivdep
               for (std::int64_t i = begin; i < end; ++i) {
                 const C g = sign * grad[i] + coupled * p[i];
                 const C mean = keep1 * m[i] + take1 * g;
                 const C square = keep2 * v[i] + take2 * g * g;
                 const C largest = larger<C>(w[i], square);
                 m[i] = static_cast<T>(mean);
                 v[i] = static_cast<T>(square);
                 w[i] = static_cast<T>(largest);
                 p[i] = static_cast<T>(shrink * p[i] -
                                       size * mean / (std::sqrt(largest) * root_scale + epsilon));
               }
               return;
             }
#pragma GCC ivdep
             for (std::int64_t i = begin; i < end; ++i) {
               const C g = sign * grad[i] + coupled * p[i];
               const C mean = keep1 * m[i] + take1 * g;
               const C square = keep2 * v[i] + take2 * g * g;
               m[i] = static_cast<T>(mean);
               v[i] = static_cast<T>(square);
               p[i] = static_cast<T>(shrink * p[i] -
                                     size * mean / (std::sqrt(square) * root_scale + epsilon));
             }
           });
}

}  // namespace

void sgd(const SgdArgs& args) {
  visit_floating(args.dtype, "sgd", [&]<typename T>() { sgd_with<T>(args); });
}

void adam(const AdamArgs& args) {
  visit_floating(args.dtype, "adam", [&]<typename T>() { adam_with<T>(args); });
}

}  // namespace capstan::cpu

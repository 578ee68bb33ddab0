#include <cmath>

#include "framework/core/dtype_visit.h"
#include "ops/cpu/parameter_loop.h"

namespace capstan::cpu {
namespace {

template <typename T>
void rmsprop_with(const RmspropArgs& args) {
  using C = Compute<T>;
  const C rate = static_cast<C>(args.hyper[0]);
  const C keep = static_cast<C>(args.hyper[1]);
  const C take = static_cast<C>(1.0 - args.hyper[1]);
  const C epsilon = static_cast<C>(args.hyper[2]);
  const C decay = static_cast<C>(args.hyper[3]);
  const C momentum = static_cast<C>(args.hyper[4]);
  const C sign = args.maximize ? C{-1} : C{1};
  run_step(args.list, args.step,
           [&](const ParameterEntry& entry, std::int64_t begin, std::int64_t end) {
             T* p = static_cast<T*>(entry.parameter);
             const T* grad = static_cast<const T*>(entry.grad);
             T* s = static_cast<T*>(entry.state1);
             T* a = static_cast<T*>(entry.state2);
             T* b = static_cast<T*>(entry.state3);
             for (std::int64_t i = begin; i < end; ++i) {
               const C g = sign * grad[i] + decay * p[i];
               const C square = keep * s[i] + take * g * g;
               s[i] = static_cast<T>(square);
               C spread = square;
               if (a != nullptr) {
                 const C average = a[i] + take * (g - a[i]);
                 a[i] = static_cast<T>(average);
                 spread -= average * average;
               }
               C change = g / (std::sqrt(spread) + epsilon);
               if (b != nullptr) {
                 change += momentum * b[i];
                 b[i] = static_cast<T>(change);
               }
               p[i] = static_cast<T>(p[i] - rate * change);
             }
           });
}

template <typename T>
void adagrad_with(const AdagradArgs& args) {
  using C = Compute<T>;
  const double steps = static_cast<double>(*args.step);
  const C rate = static_cast<C>(args.hyper[0] / (1.0 + steps * args.hyper[1]));
  const C decay = static_cast<C>(args.hyper[2]);
  const C epsilon = static_cast<C>(args.hyper[3]);
  const C sign = args.maximize ? C{-1} : C{1};
  run_step(args.list, args.step,
           [&](const ParameterEntry& entry, std::int64_t begin, std::int64_t end) {
             T* p = static_cast<T*>(entry.parameter);
             const T* grad = static_cast<const T*>(entry.grad);
             T* s = static_cast<T*>(entry.state1);
#pragma GCC ivdep
             for (std::int64_t i = begin; i < end; ++i) {
               const C g = sign * grad[i] + decay * p[i];
               const C sum = s[i] + g * g;
               s[i] = static_cast<T>(sum);
               p[i] = static_cast<T>(p[i] - rate * g / (std::sqrt(sum) + epsilon));
             }
           });
}

template <typename T>
void lion_with(const LionArgs& args) {
  using C = Compute<T>;
  const C rate = static_cast<C>(args.hyper[0]);
  const C keep1 = static_cast<C>(args.hyper[1]);
  const C take1 = static_cast<C>(1.0 - args.hyper[1]);
  const C keep2 = static_cast<C>(args.hyper[2]);
  const C take2 = static_cast<C>(1.0 - args.hyper[2]);
  const C shrink = static_cast<C>(1.0 - args.hyper[0] * args.hyper[3]);
  const C sign = args.maximize ? C{-1} : C{1};
  run_step(args.list, args.step,
           [&](const ParameterEntry& entry, std::int64_t begin, std::int64_t end) {
             T* p = static_cast<T*>(entry.parameter);
             const T* grad = static_cast<const T*>(entry.grad);
             T* m = static_cast<T*>(entry.state1);
             for (std::int64_t i = begin; i < end; ++i) {
               const C g = sign * grad[i];
               const C mixed = keep1 * m[i] + take1 * g;
               m[i] = static_cast<T>(keep2 * m[i] + take2 * g);
               // NaN stays NaN.
               const C direction = mixed > C{0} ? C{1} : mixed < C{0} ? C{-1} : mixed;
               p[i] = static_cast<T>(shrink * p[i] - rate * direction);
             }
           });
}

}  // namespace

void rmsprop(const RmspropArgs& args) {
  visit_floating(args.dtype, "rmsprop", [&]<typename T>() { rmsprop_with<T>(args); });
}

void adagrad(const AdagradArgs& args) {
  visit_floating(args.dtype, "adagrad", [&]<typename T>() { adagrad_with<T>(args); });
}

void lion(const LionArgs& args) {
  visit_floating(args.dtype, "lion", [&]<typename T>() { lion_with<T>(args); });
}

}  // namespace capstan::cpu

#include <cmath>
#include <numbers>

#include "framework/core/dtype_visit.h"
#include "ops/cpu/philox_lanes.h"
#include "ops/kernels.h"

namespace capstan::cpu {
namespace {

constexpr double kTwoTo32 = 4294967296.0;

template <typename T>
void draw_uniform(const RandomArgs& args) {
  T* y = static_cast<T*>(args.y);
  for_each_word_group(args.random, args.numel,
                      [&](std::int64_t first, std::int64_t count, const std::uint32_t* words) {
                        for (std::int64_t i = 0; i < count; ++i) {
                          y[first + i] =
                              static_cast<T>(args.a + (args.b - args.a) * to_uniform(words[i]));
                        }
                      });
}

template <typename T>
void draw_bernoulli(const RandomArgs& args) {
  T* y = static_cast<T*>(args.y);
  const float p = static_cast<float>(args.a);
  for_each_word_group(args.random, args.numel,
                      [&](std::int64_t first, std::int64_t count, const std::uint32_t* words) {
                        for (std::int64_t i = 0; i < count; ++i) {
                          y[first + i] = static_cast<T>(to_uniform(words[i]) < p);
                        }
                      });
}

template <typename T>
void draw_normal(const RandomArgs& args) {
  T* y = static_cast<T*>(args.y);
  for_each_word_group(args.random, args.numel,
                      [&](std::int64_t first, std::int64_t count, const std::uint32_t* words) {
                        for (std::int64_t i = 0; i < count; i += 2) {
                          const double u1 = (words[i] + 1.0) / kTwoTo32;
                          const double angle = 2.0 * std::numbers::pi * (words[i + 1] / kTwoTo32);
                          const double radius = args.b * std::sqrt(-2.0 * std::log(u1));
                          y[first + i] = static_cast<T>(args.a + radius * std::cos(angle));
                          if (i + 1 < count)
                            y[first + i + 1] = static_cast<T>(args.a + radius * std::sin(angle));
                        }
                      });
}

}  // namespace

void random(const RandomArgs& args) {
  switch (args.op) {
    case RandomOp::uniform:
      return visit_floating(args.dtype, "uniform", [&]<typename T>() { draw_uniform<T>(args); });
    case RandomOp::normal:
      return visit_floating(args.dtype, "normal", [&]<typename T>() { draw_normal<T>(args); });
    case RandomOp::bernoulli:
      return visit_all(args.dtype, "bernoulli", [&]<typename T>() { draw_bernoulli<T>(args); });
  }
}

}  // namespace capstan::cpu

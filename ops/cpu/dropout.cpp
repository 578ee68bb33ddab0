#include "framework/core/dtype_visit.h"
#include "ops/cpu/philox_lanes.h"
#include "ops/kernels.h"

namespace capstan::cpu {
namespace {

template <typename T>
void drop(const DropoutArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  T* y = static_cast<T*>(args.y);
  const float p = static_cast<float>(args.p);
  using C = Compute<T>;
  const C scale = args.p < 1.0 ? static_cast<C>(1.0 / (1.0 - args.p)) : C{0};
  for_each_word_group(args.random, args.numel,
                      [&](std::int64_t first, std::int64_t count, const std::uint32_t* words) {
                        const T* from = x + first;
                        T* to = y + first;
                        bool* mask = args.mask + first;
#pragma GCC ivdep
                        for (std::int64_t i = 0; i < count; ++i) {
                          const bool kept = to_uniform(words[i]) >= p;
                          mask[i] = kept;
                          const C scaled = from[i] * scale;
                          to[i] = static_cast<T>(kept ? scaled : C{0});
                        }
                      });
}

}  // namespace

void dropout(const DropoutArgs& args) {
  visit_floating(args.dtype, "dropout", [&]<typename T>() { drop<T>(args); });
}

}  // namespace capstan::cpu

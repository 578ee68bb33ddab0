// Random fills and dropout. A thread takes one Philox block, which is four neighbouring elements,
// so numbers depend on the position alone and equal those of the CPU. Arithmetic is not contracted
// to fused multiply-adds where that would change the last bit.

#include "framework/core/dtype_visit.h"
#include "framework/random/philox.h"
#include "ops/gpu/launch.cuh"
#include "ops/gpu/pack.cuh"

namespace capstan::gpu {
namespace {

constexpr int kWords = 4;

template <typename T>
struct Uniform {
  double low, width;
  __device__ Pack<T, kWords> operator()(const PhiloxBlock& block) const {
    Pack<T, kWords> result;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const double u = to_uniform(block.word[i]);
      result.value[i] = static_cast<T>(__dadd_rn(low, __dmul_rn(width, u)));
    }
    return result;
  }
};

template <typename T>
struct Normal {
  double mean, deviation;
  __device__ Pack<T, kWords> operator()(const PhiloxBlock& block) const {
    constexpr double kTwoToMinus32 = 1.0 / 4294967296.0;
    constexpr double kTwoPi = 6.283185307179586476925;
    Pack<T, kWords> result;
#pragma unroll
    for (int i = 0; i < kWords; i += 2) {
      const double u1 = (static_cast<double>(block.word[i]) + 1.0) * kTwoToMinus32;
      const double u2 = static_cast<double>(block.word[i + 1]) * kTwoToMinus32;
      const double radius = ::sqrt(-2.0 * ::log(u1));
      const double angle = kTwoPi * u2;
      result.value[i] = scaled(radius * ::cos(angle));
      result.value[i + 1] = scaled(radius * ::sin(angle));
    }
    return result;
  }
  __device__ T scaled(double z) const {
    return static_cast<T>(__dadd_rn(mean, __dmul_rn(deviation, z)));
  }
};

template <typename T>
struct Bernoulli {
  float p;
  __device__ Pack<T, kWords> operator()(const PhiloxBlock& block) const {
    Pack<T, kWords> result;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      result.value[i] = static_cast<T>(to_uniform(block.word[i]) < p);
    }
    return result;
  }
};

// Launch: <<<blocks_for(numel, kBlockSize * kWords), kBlockSize>>>.
template <typename T, typename Draw>
__global__ void __launch_bounds__(kBlockSize)
    random_kernel(T* y, std::int64_t numel, PhiloxArgs random, bool packed, Draw draw) {
  const std::uint64_t key = random.key();
  const std::uint64_t first = random.first_block();
  for (std::int64_t i = thread_index(); i * kWords < numel; i += thread_count()) {
    const PhiloxBlock block = philox(key, first + static_cast<std::uint64_t>(i));
    store_pack<kWords>(y, i * kWords, numel, packed, draw(block));
  }
}

// Launch: as random_kernel.
template <typename T>
__global__ void __launch_bounds__(kBlockSize) dropout_kernel(DropoutArgs args, bool packed) {
  const T* x = static_cast<const T*>(args.x);
  const float p = static_cast<float>(args.p);
  using C = Compute<T>;
  const C scale = args.p < 1.0 ? static_cast<C>(1.0 / (1.0 - args.p)) : C{0};
  const std::uint64_t key = args.random.key();
  const std::uint64_t first = args.random.first_block();
  for (std::int64_t i = thread_index(); i * kWords < args.numel; i += thread_count()) {
    const PhiloxBlock block = philox(key, first + static_cast<std::uint64_t>(i));
    Pack<T, kWords> y = load_pack<kWords>(x, i * kWords, args.numel, packed);
    Pack<bool, kWords> mask;
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
      mask.value[word] = to_uniform(block.word[word]) >= p;
      y.value[word] = static_cast<T>(mask.value[word] ? y.value[word] * scale : C{0});
    }
    store_pack<kWords>(static_cast<T*>(args.y), i * kWords, args.numel, packed, y);
    store_pack<kWords>(args.mask, i * kWords, args.numel, packed, mask);
  }
}

template <typename T, typename Draw>
void launch(const RandomArgs& args, Draw draw, StreamState& stream) {
  random_kernel<T, Draw>
      <<<blocks_for(args.numel, kBlockSize * kWords), kBlockSize, 0, native_stream(stream)>>>(
          static_cast<T*>(args.y), args.numel, args.random, is_aligned_for_packs<T, kWords>(args.y),
          draw);
  CAPSTAN_CHECK_LAUNCH(random_kernel);
}

}  // namespace

void random(const RandomArgs& args, StreamState& stream) {
  switch (args.op) {
    case RandomOp::uniform:
      visit_floating(args.dtype, "uniform", [&]<typename T>() {
        launch<T>(args, Uniform<T>{args.a, args.b - args.a}, stream);
      });
      return;
    case RandomOp::normal:
      visit_floating(args.dtype, "normal", [&]<typename T>() {
        launch<T>(args, Normal<T>{args.a, args.b}, stream);
      });
      return;
    case RandomOp::bernoulli:
      visit_all(args.dtype, "bernoulli", [&]<typename T>() {
        launch<T>(args, Bernoulli<T>{static_cast<float>(args.a)}, stream);
      });
      return;
  }
}

void dropout(const DropoutArgs& args, StreamState& stream) {
  visit_floating(args.dtype, "dropout", [&]<typename T>() {
    const bool packed = is_aligned_for_packs<T, kWords>(args.x) &&
                        is_aligned_for_packs<T, kWords>(args.y) &&
                        is_aligned_for_packs<bool, kWords>(args.mask);
    dropout_kernel<T>
        <<<blocks_for(args.numel, kBlockSize * kWords), kBlockSize, 0, native_stream(stream)>>>(
            args, packed);
    CAPSTAN_CHECK_LAUNCH(dropout_kernel);
  });
}

}  // namespace capstan::gpu

// Batch normalisation. Few channels with many elements would leave most of the GPU idle, so several
// blocks share a channel: each leaves its sums in scratch, and a second kernel adds them in a fixed
// order. Sums run in double, of values minus the channel's first one, which needs a single pass
// over x and loses nothing to cancellation.

#include "ops/norm_kernels.h"

#include "framework/core/dtype_visit.h"
#include "framework/runtime/library_handles.h"
#include "ops/gpu/group.cuh"

namespace capstan::gpu {
namespace {

struct Sums {
  double first, second;
};

/// How many blocks share a channel, and how many elements of it each takes.
struct Shares {
  std::int64_t blocks, length;
};

constexpr std::int64_t kWantedBlocks = 1024;
constexpr std::int64_t kLeastShare = 2048;  // elements that pay for a block

std::int64_t count_of(const ChannelSizes& sizes) { return sizes.outer * sizes.inner; }

Shares shares_of(const ChannelSizes& sizes) {
  const std::int64_t count = count_of(sizes);
  const std::int64_t blocks =
      std::clamp<std::int64_t>(kWantedBlocks / sizes.channels, 1, ceil_div(count, kLeastShare));
  return {blocks, ceil_div(count, blocks)};
}

__device__ std::int64_t offset_of(const ChannelSizes& sizes, std::int64_t channel,
                                  std::int64_t element) {
  const Quotient at = divide(element, sizes.inner);
  return (at.quotient * sizes.channels + channel) * sizes.inner + at.remainder;
}

/// Sums of `value(offset)` over the calling block's shares of channels.
template <typename Value>
__device__ void sum_shares(const ChannelSizes& sizes, Shares shares, Sums* sums, Value value) {
  const std::int64_t count = sizes.outer * sizes.inner;
  for (std::int64_t b = blockIdx.x; b < sizes.channels * shares.blocks; b += gridDim.x) {
    const auto [channel, share] = divide(b, shares.blocks);
    const std::int64_t begin = share * shares.length;
    const std::int64_t end = begin + shares.length < count ? begin + shares.length : count;
    Sums own{0.0, 0.0};
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kBlockSize) {
      const Sums term = value(channel, offset_of(sizes, channel, i));
      own.first += term.first;
      own.second += term.second;
    }
    own.first = block_reduce<kBlockSize>(own.first, Add{});
    own.second = block_reduce<kBlockSize>(own.second, Add{});
    if (threadIdx.x == 0) sums[b] = own;
  }
}

/// Adds the shares of a channel; all lanes of the warp get the result.
__device__ Sums add_shares(const Sums* sums, Shares shares, std::int64_t channel) {
  Sums own{0.0, 0.0};
  for (std::int64_t s = threadIdx.x; s < shares.blocks; s += kWarpSize) {
    own.first += sums[channel * shares.blocks + s].first;
    own.second += sums[channel * shares.blocks + s].second;
  }
  return {warp_reduce(own.first, Add{}), warp_reduce(own.second, Add{})};
}

template <typename T>
__device__ double first_of(const BatchStatsArgs& args, std::int64_t channel) {
  return static_cast<Compute<T>>(static_cast<const T*>(args.x)[channel * args.sizes.inner]);
}

// Launch: <<<blocks_for(channels * shares.blocks, 1), kBlockSize>>>.
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
    stats_sums_kernel(BatchStatsArgs args, Shares shares, Sums* sums) {
  sum_shares(args.sizes, shares, sums, [&](std::int64_t channel, std::int64_t at) {
    const double d =
        static_cast<Compute<T>>(static_cast<const T*>(args.x)[at]) - first_of<T>(args, channel);
    return Sums{d, d * d};
  });
}

template <typename S>
__device__ void store_stats(const BatchStatsArgs& args, std::int64_t c, double mean, double var) {
  static_cast<S*>(args.mean)[c] = static_cast<S>(mean);
  static_cast<S*>(args.inv_std)[c] = static_cast<S>(1.0 / ::sqrt(var + args.eps));
}

template <typename S>
__device__ void follow(void* running, std::int64_t c, double momentum, double to) {
  S& value = static_cast<S*>(running)[c];
  value = static_cast<S>((1.0 - momentum) * value + momentum * to);
}

// Launch: <<<blocks_for(channels, groups per block), group_block(kWarpSize)>>>.
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
    stats_kernel(BatchStatsArgs args, Shares shares, const Sums* sums) {
  using S = Compute<T>;
  const double count = static_cast<double>(args.sizes.outer * args.sizes.inner);
  for (std::int64_t c = group_index(); c < args.sizes.channels; c += group_count()) {
    const Sums total = add_shares(sums, shares, c);
    if (threadIdx.x != 0) continue;
    const double offset = total.first / count;
    const double squares = total.second - total.first * offset;
    const double mean = first_of<T>(args, c) + offset;
    // Rounding may leave a little less than nothing; NaN passes.
    const double positive = squares < 0.0 ? 0.0 : squares;
    store_stats<S>(args, c, mean, positive / count);
    if (args.running_mean == nullptr) continue;
    const double momentum =
        args.batches != nullptr ? 1.0 / static_cast<double>(*args.batches + 1) : args.momentum;
    follow<S>(args.running_mean, c, momentum, mean);
    follow<S>(args.running_var, c, momentum, positive / (count - 1.0));
  }
}

// Launch: <<<blocks_for(channels, kBlockSize), kBlockSize>>>.
template <typename S>
__global__ void __launch_bounds__(kBlockSize) fixed_stats_kernel(BatchStatsArgs args) {
  for (std::int64_t c = thread_index(); c < args.sizes.channels; c += thread_count()) {
    store_stats<S>(args, c, static_cast<const S*>(args.running_mean)[c],
                   static_cast<const S*>(args.running_var)[c]);
  }
}

// Launch: <<<blocks_for(numel, kBlockSize), kBlockSize>>>.
template <typename T>
__global__ void __launch_bounds__(kBlockSize) normalise_kernel(BatchNormArgs args) {
  using S = Compute<T>;
  const S* weight = static_cast<const S*>(args.weight);
  const S* bias = static_cast<const S*>(args.bias);
  const std::int64_t numel = args.sizes.outer * args.sizes.channels * args.sizes.inner;
  for (std::int64_t i = thread_index(); i < numel; i += thread_count()) {
    const std::int64_t c =
        divide(divide(i, args.sizes.inner).quotient, args.sizes.channels).remainder;
    S scale = static_cast<const S*>(args.inv_std)[c];
    if (weight != nullptr) scale *= weight[c];
    const S x = static_cast<const T*>(args.x)[i];
    const S shift = bias != nullptr ? bias[c] : S{0};
    static_cast<T*>(args.y)[i] =
        static_cast<T>((x - static_cast<const S*>(args.mean)[c]) * scale + shift);
  }
}

// Launch: as stats_sums_kernel.
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
    backward_sums_kernel(BatchNormBackwardArgs args, Shares shares, Sums* sums) {
  using S = Compute<T>;
  sum_shares(args.sizes, shares, sums, [&](std::int64_t channel, std::int64_t at) {
    const double g = static_cast<S>(static_cast<const T*>(args.grad)[at]);
    const double x = static_cast<S>(static_cast<const T*>(args.x)[at]);
    return Sums{g, g * (x - static_cast<const S*>(args.mean)[channel])};
  });
}

// Launch: as stats_kernel.
template <typename S>
__global__ void __launch_bounds__(kBlockSize)
    backward_total_kernel(BatchNormBackwardArgs args, Shares shares, const Sums* sums) {
  for (std::int64_t c = group_index(); c < args.sizes.channels; c += group_count()) {
    const Sums total = add_shares(sums, shares, c);
    if (threadIdx.x != 0) continue;
    static_cast<S*>(args.dbias)[c] = static_cast<S>(total.first);
    static_cast<S*>(args.dweight)[c] =
        static_cast<S>(total.second * static_cast<const S*>(args.inv_std)[c]);
  }
}

// Launch: as normalise_kernel.
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
    backward_kernel(BatchNormBackwardArgs args, Compute<T> share) {
  using S = Compute<T>;
  const S* weight = static_cast<const S*>(args.weight);
  const std::int64_t numel = args.sizes.outer * args.sizes.channels * args.sizes.inner;
  for (std::int64_t i = thread_index(); i < numel; i += thread_count()) {
    const std::int64_t c =
        divide(divide(i, args.sizes.inner).quotient, args.sizes.channels).remainder;
    const S inv_std = static_cast<const S*>(args.inv_std)[c];
    const S scale = weight != nullptr ? inv_std * weight[c] : inv_std;
    const S x = static_cast<const T*>(args.x)[i];
    const S g = static_cast<const T*>(args.grad)[i];
    const S n = (x - static_cast<const S*>(args.mean)[c]) * inv_std;
    const S flows =
        share * (static_cast<const S*>(args.dbias)[c] + n * static_cast<const S*>(args.dweight)[c]);
    static_cast<T*>(args.dx)[i] = static_cast<T>(scale * (g - flows));
  }
}

Sums* sums_for(const ChannelSizes& sizes, Shares shares, StreamState& stream) {
  const auto bytes = static_cast<std::size_t>(sizes.channels * shares.blocks) * sizeof(Sums);
  return static_cast<Sums*>(scratch(stream, bytes).data);
}

}  // namespace

void batch_stats(const BatchStatsArgs& args, StreamState& stream) {
  const std::int64_t channels = args.sizes.channels;
  visit_floating(args.dtype, "batch_norm", [&]<typename T>() {
    if (args.x == nullptr) {
      fixed_stats_kernel<Compute<T>>
          <<<blocks_for(channels, kBlockSize), kBlockSize, 0, native_stream(stream)>>>(args);
      CAPSTAN_CHECK_LAUNCH(fixed_stats_kernel);
      return;
    }
    const Shares shares = shares_of(args.sizes);
    Sums* const sums = sums_for(args.sizes, shares, stream);
    stats_sums_kernel<T>
        <<<blocks_for(channels * shares.blocks, 1), kBlockSize, 0, native_stream(stream)>>>(
            args, shares, sums);
    CAPSTAN_CHECK_LAUNCH(stats_sums_kernel);
    const dim3 block = group_block(kWarpSize);
    stats_kernel<T>
        <<<blocks_for(channels, block.y), block, 0, native_stream(stream)>>>(args, shares, sums);
    CAPSTAN_CHECK_LAUNCH(stats_kernel);
  });
}

void batch_norm(const BatchNormArgs& args, StreamState& stream) {
  visit_floating(args.dtype, "batch_norm", [&]<typename T>() {
    normalise_kernel<T><<<blocks_for(count_of(args.sizes) * args.sizes.channels, kBlockSize),
                          kBlockSize, 0, native_stream(stream)>>>(args);
    CAPSTAN_CHECK_LAUNCH(normalise_kernel);
  });
}

void batch_norm_backward(const BatchNormBackwardArgs& args, StreamState& stream) {
  const std::int64_t channels = args.sizes.channels;
  const Shares shares = shares_of(args.sizes);
  Sums* const sums = sums_for(args.sizes, shares, stream);
  visit_floating(args.dtype, "batch_norm_backward", [&]<typename T>() {
    using S = Compute<T>;
    backward_sums_kernel<T>
        <<<blocks_for(channels * shares.blocks, 1), kBlockSize, 0, native_stream(stream)>>>(
            args, shares, sums);
    CAPSTAN_CHECK_LAUNCH(backward_sums_kernel);
    const dim3 block = group_block(kWarpSize);
    backward_total_kernel<S>
        <<<blocks_for(channels, block.y), block, 0, native_stream(stream)>>>(args, shares, sums);
    CAPSTAN_CHECK_LAUNCH(backward_total_kernel);
    if (args.dx == nullptr) return;
    const S share = args.through_stats ? S{1} / static_cast<S>(count_of(args.sizes)) : S{0};
    backward_kernel<T><<<blocks_for(count_of(args.sizes) * channels, kBlockSize), kBlockSize, 0,
                         native_stream(stream)>>>(args, share);
    CAPSTAN_CHECK_LAUNCH(backward_kernel);
  });
}

}  // namespace capstan::gpu

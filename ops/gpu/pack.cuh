// Several neighbouring elements that one thread loads and stores at once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace capstan::gpu {

template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T value[kCount];
};

/// True if packs can be loaded from `address`; also for null.
template <typename T, int kCount>
inline __host__ __device__ bool is_aligned_for_packs(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % (sizeof(T) * kCount) == 0;
}

/// Elements [begin, begin + kCount) of `data` as far as they lie before `end`; the others are zero,
/// and so are all if `data` is null. `packed`: `data` is aligned and `begin` a multiple of kCount.
template <int kCount, typename T>
__device__ Pack<T, kCount> load_pack(const T* data, std::int64_t begin, std::int64_t end,
                                     bool packed) {
  if (data != nullptr && packed && begin + kCount <= end) {
    return *reinterpret_cast<const Pack<T, kCount>*>(data + begin);
  }
  Pack<T, kCount> pack;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    pack.value[i] = data != nullptr && begin + i < end ? data[begin + i] : T{};
  }
  return pack;
}

/// The counterpart of `load_pack`; stores nothing if `data` is null.
template <int kCount, typename T>
__device__ void store_pack(T* data, std::int64_t begin, std::int64_t end, bool packed,
                           const Pack<T, kCount>& pack) {
  if (data == nullptr) return;
  if (packed && begin + kCount <= end) {
    *reinterpret_cast<Pack<T, kCount>*>(data + begin) = pack;
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (begin + i < end) data[begin + i] = pack.value[i];
  }
}

}  // namespace capstan::gpu

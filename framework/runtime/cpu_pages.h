#pragma once

#include <cstddef>

// Addresses of the process and the memory behind them; see DeviceRuntime for what each promises.
namespace capstan::cpu {

/// A huge page where the machine has them.
inline constexpr std::size_t kPageBytes = std::size_t{2} << 20;

[[nodiscard]] void* reserve_addresses(std::size_t bytes) noexcept;
void release_addresses(void* address, std::size_t bytes) noexcept;
[[nodiscard]] bool map_pages(void* address, std::size_t bytes) noexcept;
void unmap_pages(void* address, std::size_t bytes) noexcept;

}  // namespace capstan::cpu

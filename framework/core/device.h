#pragma once

#include <cstdint>
#include <ostream>
#include <string_view>

namespace capstan {

enum class DeviceType : std::uint8_t { cpu, gpu };

/// A place where tensors live and operations run.
struct Device {
  DeviceType type = DeviceType::cpu;
  std::int8_t index = 0;

  /// Index 0 is the CPU itself; others are emulated for tests, see emulated_cpu.h.
  [[nodiscard]] static constexpr Device cpu(int index = 0) noexcept {
    return {DeviceType::cpu, static_cast<std::int8_t>(index)};
  }
  [[nodiscard]] static constexpr Device gpu(int index = 0) noexcept {
    return {DeviceType::gpu, static_cast<std::int8_t>(index)};
  }
  /// Reads "cpu", "gpu", "gpu:1"; "cuda" means "gpu". @throws ValueError for anything else.
  [[nodiscard]] static Device parse(std::string_view text);

  [[nodiscard]] constexpr bool is_cpu() const noexcept { return type == DeviceType::cpu; }
  /// True for the CPU itself, where work runs at once and memory is the host's.
  [[nodiscard]] constexpr bool is_host() const noexcept { return is_cpu() && index == 0; }
  [[nodiscard]] constexpr bool is_gpu() const noexcept { return type == DeviceType::gpu; }
  friend constexpr bool operator==(Device, Device) = default;
};

/// "cpu" or "gpu:0".
std::ostream& operator<<(std::ostream& out, Device device);

inline constexpr int kMaxDevices = 16;

}  // namespace capstan

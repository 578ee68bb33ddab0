#include "framework/core/device.h"

#include <charconv>

#include "framework/core/error.h"

namespace capstan {

Device Device::parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  int index = 0;
  bool ok = name == "cpu" || name == "gpu" || name == "cuda";
  if (ok && colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    ok = code == std::errc{} && end == digits.data() + digits.size() && index >= 0 &&
         index < kMaxDevices;
  }
  CAPSTAN_CHECK(ok, ValueError, "device: expected cpu, gpu or gpu:N with N < ", kMaxDevices,
                ", got \"", text, '"');
  return name == "cpu" ? cpu(index) : gpu(index);
}

std::ostream& operator<<(std::ostream& out, Device device) {
  if (device.is_gpu()) return out << "gpu:" << int{device.index};
  out << "cpu";
  if (device.index != 0) out << ':' << int{device.index};
  return out;
}

}  // namespace capstan

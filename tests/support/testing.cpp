#include "tests/support/testing.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "framework/core/dtype_visit.h"
#include "framework/runtime/runtime.h"
#include "tests/support/skipped.h"

namespace capstan::testing {

namespace {

// A failure names the line of the test; a pass counts as an assertion of its case.
void report(bool ok, const Where& where, const std::string& message) {
  if (ok) {
    CHECK(ok);
  } else {
    ADD_FAIL_CHECK_AT(where.file_name(), static_cast<int>(where.line()), message);
  }
}

double error_of(double got, double want) {
  if (got == want || (std::isnan(got) && std::isnan(want))) return 0.0;
  const double error = std::abs(got - want) / (1.0 + std::abs(want));
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

Tensor on_host(const Tensor& tensor) { return tensor.detach().contiguous().to(Device::cpu()); }

void check_values(const Tensor& got, const std::vector<double>& values,
                  const std::vector<double>& want, double tolerance, const Where& where) {
  std::size_t worst = 0;
  double worst_error = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double error = error_of(values[i], want[i]);
    if (error > worst_error) {
      worst = i;
      worst_error = error;
    }
  }
  if (worst_error <= tolerance) return report(true, where, {});
  report(false, where,
         detail::concat(describe(got), ": element ", worst, " is ", values[worst], ", expected ",
                        want[worst], " (error ", worst_error, ", tolerance ", tolerance, ")"));
}

}  // namespace

bool& gpu_part_skipped() noexcept {
  static bool skipped = false;
  return skipped;
}

std::uint64_t test_seed() {
  const char* const text = std::getenv("CAPSTAN_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
}

Emulated::Emulated(EmulationOptions options) : emulation_(options) {}

Emulated::~Emulated() {
  for (const std::string& report : CpuEmulation::reports()) FAIL_CHECK(report);
}

std::vector<Device> devices() {
  std::vector<Device> found{Device::cpu()};
  if (gpu_available()) found.push_back(Device::gpu());
  return found;
}

void for_each_device(const std::function<void(Device)>& body, const char* not_emulated) {
  if (!gpu_available()) gpu_part_skipped() = true;
  for (const Device device : devices()) {
    SUBCASE(detail::concat("on ", device).c_str()) { body(device); }
  }
  if (not_emulated != nullptr) return;
  SUBCASE("on cpu:1") {
    const Emulated emulated({.seed = test_seed()});
    body(Device::cpu(1));
  }
}

bool needs_gpu() {
  if (gpu_available()) return true;
  gpu_part_skipped() = true;
  return false;
}

double tolerance_for(DType dtype, Device device) {
  switch (dtype) {
    case DType::float32: return device.is_cpu() ? 1e-6 : 1e-5;
    case DType::float64: return 1e-12;
    case DType::float16: return 1e-3;
    case DType::bfloat16: return 8e-3;
    default: return 0.0;
  }
}

void check_close(const Tensor& got, const std::vector<double>& want, double tolerance,
                 Where where) {
  const std::vector<double> values = got.detach().to_vector<double>();
  if (values.size() != want.size()) {
    report(false, where,
           detail::concat(describe(got), ": has ", values.size(), " elements, expected ",
                          want.size()));
    return;
  }
  check_values(got, values, want, tolerance, where);
}

void check_close(const Tensor& got, const Tensor& want, double tolerance, Where where) {
  if (got.shape() != want.shape()) {
    report(false, where, detail::concat("shape is ", got.shape(), ", expected ", want.shape()));
    return;
  }
  check_values(got, got.detach().to_vector<double>(), want.detach().to_vector<double>(), tolerance,
               where);
}

void check_identical(const Tensor& got, const Tensor& want, Where where) {
  if (identical(got, want)) return report(true, where, {});
  report(false, where, detail::concat("got ", got, ", expected the same bits as ", want));
}

bool identical(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  if (a.numel() == 0) return true;
  const Tensor a_host = on_host(a);
  const Tensor b_host = on_host(b);
  return std::memcmp(a_host.raw_data(), b_host.raw_data(),
                     static_cast<std::size_t>(a.numel()) * size_of(a.dtype())) == 0;
}

Tensor random_tensor(const Shape& shape, std::uint64_t seed, DType dtype, Device device) {
  // SplitMix64; 24 bits, so that both dtypes hold the same numbers exactly.
  std::uint64_t state = seed;
  const auto next = [&state] {
    state += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return std::ldexp(static_cast<double>(z >> 40), -23) - 1.0;
  };
  return visit_floating(dtype, "random_tensor", [&]<typename T>() {
    std::vector<T> values(static_cast<std::size_t>(shape.numel()));
    for (T& value : values) value = static_cast<T>(next());
    return Tensor::from_vector(shape, values, device);
  });
}

}  // namespace capstan::testing

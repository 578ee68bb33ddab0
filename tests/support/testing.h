#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <initializer_list>
#include <vector>

#include "framework/runtime/emulated_cpu.h"
#include "framework/tensor/tensor.h"

namespace capstan::testing {

/// CPU, and the GPU where there is one.
[[nodiscard]] std::vector<Device> devices();

/// CAPSTAN_TEST_SEED, or 1.
[[nodiscard]] std::uint64_t test_seed();

/// A CpuEmulation that fails the test case if reports remain at its end.
class [[nodiscard]] Emulated {
 public:
  explicit Emulated(EmulationOptions options = {});
  ~Emulated();
  Emulated(const Emulated&) = delete;
  Emulated& operator=(const Emulated&) = delete;

 private:
  const CpuEmulation emulation_;
};

/// Runs `body` as one subcase per device: the CPU, an emulated one (unless `not_emulated` says why
/// that means nothing), where work runs late and its order is checked, and the GPU. Use it once in
/// a test case. Where there is no GPU, counts one skipped GPU case, which the closing line of the
/// suite shows.
void for_each_device(const std::function<void(Device)>& body, const char* not_emulated = nullptr);

/// For a case that needs a GPU: false, and counted as skipped, where there is none.
[[nodiscard]] bool needs_gpu();

/// Largest permitted |got - want| / (1 + |want|): f32 1e-6 on the CPU and 1e-5 on the GPU, f64
/// 1e-12; f16 1e-3 and bf16 8e-3, which is two roundings.
[[nodiscard]] double tolerance_for(DType dtype, Device device);

/// Compares all elements, row-major, with `want`; reports the worst one only. NaN never passes
/// unless both are NaN.
void check_close(const Tensor& got, const std::vector<double>& want, double tolerance,
                 Where where = Where::current());
void check_close(const Tensor& got, const Tensor& want, double tolerance,
                 Where where = Where::current());
/// Same shape, dtype and bits.
void check_identical(const Tensor& got, const Tensor& want, Where where = Where::current());
[[nodiscard]] bool identical(const Tensor& a, const Tensor& b);

/// Fresh pseudo-random values in [-1, 1), the same on every device for one seed; made on the host.
[[nodiscard]] Tensor random_tensor(const Shape& shape, std::uint64_t seed,
                                   DType dtype = DType::float32, Device device = Device::cpu());

}  // namespace capstan::testing

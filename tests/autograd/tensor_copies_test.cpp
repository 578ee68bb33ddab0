#include "autograd/arithmetic.h"
#include "autograd/reduce.h"
#include "tests/support/testing.h"

namespace capstan {

using testing::check_close;

TEST_SUITE("autograd/tensor_copies") {
  TEST_CASE("contiguous and to return the very tensor where nothing changes") {
    const Tensor x = Tensor::from_vector<float>({2, 2}, {1, 2, 3, 4});
    CHECK(x.contiguous().is_same(x));
    CHECK(x.to(Device::cpu()).is_same(x));
    CHECK(x.to(DType::float32).is_same(x));
    CHECK_FALSE(x.clone().is_same(x));
    CHECK_FALSE(x.clone().storage() == x.storage());
    CHECK(x.t().contiguous().is_contiguous());
    check_close(x.t().contiguous(), {1, 3, 2, 4}, 0);
  }

  TEST_CASE("floating dtypes convert with gradients of the source's dtype") {
    testing::for_each_device([](Device device) {
      const Tensor x = Tensor::from_vector<float>({2}, {1.5f, -2.5f}, device).set_requires_grad();
      const Tensor y = x.to(DType::float64) * 3;
      CHECK(y.dtype() == DType::float64);
      y.sum().backward();
      CHECK(x.grad().dtype() == DType::float32);
      check_close(x.grad(), {3, 3}, 0);
    });
  }

  TEST_CASE("integers carry no gradient") {
    testing::for_each_device([](Device device) {
      const Tensor x = Tensor::from_vector<float>({2}, {1.5f, -2.5f}, device).set_requires_grad();
      const Tensor y = x.to(DType::int64);
      check_close(y, {1, -2}, 0);
      CHECK_FALSE(y.requires_grad());
      check_close(x.to(DType::boolean), {1, 1}, 0);
    });
  }

  TEST_CASE("gradients cross from one device to the other") {
    if (!testing::needs_gpu()) return;
    const Tensor x = Tensor::from_vector<float>({2, 2}, {1, 2, 3, 4}).set_requires_grad();
    const Tensor y = x.t().to(Device::gpu()) * 2;
    CHECK(y.device() == Device::gpu());
    check_close(y, {2, 6, 4, 8}, 0);
    y.to(Device::cpu()).select(0, 0).sum().backward();
    CHECK(x.grad().device() == Device::cpu());
    check_close(x.grad(), {2, 0, 2, 0}, 0);
  }
}

}  // namespace capstan

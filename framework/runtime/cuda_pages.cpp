#include "framework/runtime/cuda_pages.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>

#include "framework/core/error.h"

namespace capstan {
namespace {

template <typename Function>
bool look_up(const char* name, Function& function) noexcept {
  constexpr unsigned kVersion = 11030;  // the oldest that has all of them
  void* address = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t code =
      cudaGetDriverEntryPointByVersion(name, &address, kVersion, cudaEnableDefault, &result);
  if (code != cudaSuccess) (void)cudaGetLastError();
  function = reinterpret_cast<Function>(address);
  return code == cudaSuccess && result == cudaDriverEntryPointSuccess && address != nullptr;
}

struct Driver {
  decltype(&cuDeviceGetAttribute) get_attribute = nullptr;
  decltype(&cuMemGetAllocationGranularity) get_granularity = nullptr;
  decltype(&cuMemAddressReserve) address_reserve = nullptr;
  decltype(&cuMemAddressFree) address_free = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuGetErrorName) error_name = nullptr;
  bool complete = look_up("cuDeviceGetAttribute", get_attribute) &&
                  look_up("cuMemGetAllocationGranularity", get_granularity) &&
                  look_up("cuMemAddressReserve", address_reserve) &&
                  look_up("cuMemAddressFree", address_free) && look_up("cuMemCreate", create) &&
                  look_up("cuMemRelease", release) && look_up("cuMemMap", map) &&
                  look_up("cuMemUnmap", unmap) && look_up("cuMemSetAccess", set_access) &&
                  look_up("cuGetErrorName", error_name);
};

const Driver& driver() noexcept {
  static const Driver instance;
  return instance;
}

const char* name_of(CUresult code) noexcept {
  const char* name = nullptr;
  return driver().error_name(code, &name) == CUDA_SUCCESS && name != nullptr ? name : "unknown";
}

void check(CUresult code, const char* call) {
  if (code == CUDA_SUCCESS) return;
  throw CudaError(static_cast<int>(code), detail::concat(call, " failed: ", name_of(code)));
}

void report(CUresult code, const char* call) noexcept {
  // The second only says that the process is on its way out.
  if (code == CUDA_SUCCESS || code == CUDA_ERROR_DEINITIALIZED) return;
  std::fprintf(stderr, "capstan: %s failed during cleanup: %s\n", call, name_of(code));
}

CUdeviceptr number_of(void* address) noexcept { return reinterpret_cast<CUdeviceptr>(address); }

CUmemAllocationProp memory_of(int device) noexcept {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

// The mapping keeps the memory, so its handle is not needed any longer.
CUresult map_one(CUdeviceptr address, std::size_t bytes, const CUmemAllocationProp& properties,
                 const char*& call) {
  CUmemGenericAllocationHandle memory = 0;
  call = "cuMemCreate";
  CUresult code = driver().create(&memory, bytes, &properties, 0);
  if (code != CUDA_SUCCESS) return code;
  call = "cuMemMap";
  code = driver().map(address, bytes, 0, memory, 0);
  report(driver().release(memory), "cuMemRelease");
  return code;
}

}  // namespace

CudaPages::CudaPages(int device) noexcept : device_(device) {
  int supported = 0;
  if (!driver().complete ||
      driver().get_attribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                             device) != CUDA_SUCCESS ||
      supported == 0) {
    return;
  }
  const CUmemAllocationProp properties = memory_of(device);
  std::size_t bytes = 0;
  if (driver().get_granularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) ==
      CUDA_SUCCESS) {
    page_bytes_ = bytes;
  }
}

void* CudaPages::reserve(std::size_t bytes) {
  CUdeviceptr address = 0;
  const CUresult code = driver().address_reserve(&address, bytes, page_bytes_, 0, 0);
  if (code == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
  check(code, "cuMemAddressReserve");
  return reinterpret_cast<void*>(address);
}

void CudaPages::release(void* address, std::size_t bytes) noexcept {
  report(driver().address_free(number_of(address), bytes), "cuMemAddressFree");
}

// Page by page, since only what was mapped in one piece can be unmapped in one piece.
bool CudaPages::map(void* address, std::size_t bytes) {
  const CUmemAllocationProp properties = memory_of(device_);
  const char* call = "";
  CUresult code = CUDA_SUCCESS;
  std::size_t mapped = 0;
  while (mapped < bytes) {
    code = map_one(number_of(address) + mapped, page_bytes_, properties, call);
    if (code != CUDA_SUCCESS) break;
    mapped += page_bytes_;
  }
  if (code == CUDA_SUCCESS) {
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    call = "cuMemSetAccess";
    code = driver().set_access(number_of(address), bytes, &access, 1);
  }
  if (code == CUDA_SUCCESS) return true;
  if (mapped != 0) unmap(address, mapped);
  if (code == CUDA_ERROR_OUT_OF_MEMORY) return false;
  check(code, call);
  return false;
}

void CudaPages::unmap(void* address, std::size_t bytes) noexcept {
  report(driver().unmap(number_of(address), bytes), "cuMemUnmap");
}

}  // namespace capstan

#include <utility>

#include "framework/memory/caching_allocator.h"

namespace capstan {

GraphPool::Lease::Lease(Device pool_device, std::string name)
    : device(pool_device), id(allocator(pool_device).create_pool(std::move(name))) {}

GraphPool::Lease::~Lease() { allocator(device).release_pool(id); }

GraphPool::GraphPool(Device device, std::string name)
    : lease_(make_ref<Lease>(device, std::move(name))) {}

PoolStats GraphPool::stats() const {
  if (!lease_) return {};
  for (const PoolReport& pool : allocator(lease_->device).stats().pools) {
    if (pool.id == lease_->id) return pool.stats;
  }
  return {};
}

GraphPool graph_pool_handle(Device device, std::string name) {
  return GraphPool(device, std::move(name));
}

}  // namespace capstan

#include <utility>

#include "framework/core/error.h"
#include "framework/memory/caching_allocator.h"
#include "framework/runtime/forbidden.h"

namespace capstan {
namespace {

constinit thread_local const PoolGuard* innermost_guard = nullptr;

}  // namespace

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

PoolGuard::PoolGuard(GraphPool pool, Where where)
    : pool_(std::move(pool)), outer_(innermost_guard) {
  const CallSite site(where);
  CAPSTAN_CHECK(pool_, StateError,
                "PoolGuard: the pool handle is empty; make one with graph_pool_handle");
  refuse_while_capturing(pool_.device(), Forbidden::pool_guard);
  for (const PoolGuard* guard = innermost_guard; guard != nullptr; guard = guard->outer_) {
    CAPSTAN_CHECK(guard->pool_ != pool_, StateError, "PoolGuard: pool ", pool_.id(),
                  " already serves this thread; end that guard first");
  }
  innermost_guard = this;
}

PoolGuard::~PoolGuard() { innermost_guard = outer_; }

std::uint64_t PoolGuard::current(Device device) noexcept {
  for (const PoolGuard* guard = innermost_guard; guard != nullptr; guard = guard->outer_) {
    if (guard->pool_.device() == device) return guard->pool_.id();
  }
  return 0;
}

GraphPool graph_pool_handle(Device device, std::string name) {
  return GraphPool(device, std::move(name));
}

}  // namespace capstan

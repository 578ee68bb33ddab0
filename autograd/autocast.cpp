#include "autograd/autocast.h"

#include <array>
#include <unordered_map>

#include "autograd/autocast_policy.h"
#include "autograd/node.h"
#include "framework/runtime/capture_session.h"
#include "framework/tensor/write_journal.h"
#include "ops/elementwise.h"

namespace capstan {
namespace {

using autograd::BackwardContext;
using autograd::Edge;
using autograd::edge_of;

/// Scopes that live on this thread.
constinit thread_local int depth = 0;

/// Where work is given to: a conversion made here is of no use elsewhere.
struct Place {
  const StreamState* stream = nullptr;
  std::uint64_t capture = 0;  // 0: none

  friend bool operator==(const Place&, const Place&) = default;
};

Place place_of(Device device) {
  const StreamState& stream = detail::current_stream_state(device);
  const CaptureSession* session = stream.session();
  return {&stream, session != nullptr ? session->id() : 0};
}

/// What a parameter's values depend on.
struct Contents {
  std::uint64_t storage = 0;
  std::int64_t version = 0;
  std::int64_t offset = 0;
  Shape shape;
  Strides strides;

  friend bool operator==(const Contents&, const Contents&) = default;
};

Contents contents_of(const Tensor& tensor) {
  return {tensor.storage()->serial(), tensor.storage()->version(), tensor.offset(), tensor.shape(),
          tensor.strides()};
}

struct CachedCast {
  Tensor parameter;  // so that its address names nothing else
  Contents contents;
  Place place;
  Tensor cast;
  const autograd::Node* leaf;  // where its gradient goes; null if none was recorded
};

thread_local std::unordered_map<const TensorImpl*, CachedCast> cache;

/// Keeps no values, so graphs that share a cached conversion can each run backward through it.
class CastNode final : public autograd::Node {
 public:
  CastNode(const Tensor& from, Device place)
      : Node("autocast", place, 1), edges_{edge_of(from)}, source_(from.dtype()) {
    reusable = true;
  }
  [[nodiscard]] std::span<Edge> edges() noexcept override { return edges_; }
  void backward(BackwardContext& context) override { context.set(0, context.grad().to(source_)); }
  void release_saved() override {}

 private:
  std::array<Edge, 1> edges_;
  DType source_;
};

Tensor convert(const Tensor& tensor, DType dtype) {
  Tensor y = ops::cast(tensor, dtype);
  if (autograd::needs_grad(tensor)) {
    autograd::detail::attach(y, make_ref<CastNode>(tensor, tensor.device()), 0);
  }
  return y;
}

bool is_kept(const Tensor& tensor, DType dtype, const Place& place) {
  if (depth == 0 || !is_autocast_cache_enabled()) return false;
  if (tensor.dtype() != DType::float32 || dtype == DType::float32) return false;
  if (!tensor.requires_grad() || !tensor.is_leaf()) return false;
  // A trial run is undone, and versions with it: they would come to name other values.
  return place.capture != 0 || WriteJournal::current() == nullptr;
}

}  // namespace

Autocast::Autocast(DeviceType type, AutocastOptions options, Where where)
    : saved_(detail::autocast_modes) {
  const CallSite site(where);
  CAPSTAN_CHECK(!options.dtype || is_half(*options.dtype), DTypeError,
                "autocast: the dtype must be float16 or bfloat16, got ", *options.dtype,
                "; for other dtypes convert the model with to(dtype)");
  detail::AutocastModes& modes = detail::autocast_modes;
  detail::AutocastMode& mode = type == DeviceType::cpu ? modes.cpu : modes.gpu;
  mode = {options.enabled, options.dtype.value_or(mode.dtype)};
  modes.cache_enabled = options.cache_enabled;
  ++depth;
}

Autocast::~Autocast() {
  detail::autocast_modes = saved_;
  if (--depth == 0) clear_autocast_cache();
}

void clear_autocast_cache() noexcept { cache.clear(); }

Tensor autograd::autocast(CastTo to, const Tensor& tensor) {
  if (!detail::is_autocast(to, tensor)) return tensor;
  const DType dtype = detail::autocast_target(to, tensor);
  const Place place = place_of(tensor.device());
  if (!is_kept(tensor, dtype, place)) return convert(tensor, dtype);
  const Contents contents = contents_of(tensor);
  const Node* const leaf = grad_enabled() ? edge_of(tensor).node.get() : nullptr;
  if (const auto found = cache.find(tensor.impl().get()); found != cache.end()) {
    const CachedCast& entry = found->second;
    const bool fits = entry.cast.dtype() == dtype && entry.place == place &&
                      entry.contents == contents && (leaf == nullptr || entry.leaf == leaf);
    if (fits) return entry.cast;
    cache.erase(found);
  }
  Tensor cast = convert(tensor, dtype);
  cache.emplace(tensor.impl().get(), CachedCast{tensor, contents, place, cast, leaf});
  return cast;
}

}  // namespace capstan

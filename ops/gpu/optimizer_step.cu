// One launch updates all parameters: the grid runs over equal chunks of them, and a block finds its
// parameter by bisection in the chunk counts, so many small parameters cost no more than one large
// one. Hyperparameters and the step count come from device memory, since a replay must see their
// current values; the block that finishes last counts the step, after all have read it.

#include "framework/core/dtype_visit.h"
#include "framework/runtime/library_handles.h"
#include "ops/gpu/launch.cuh"
#include "ops/gpu/pack.cuh"
#include "ops/gpu/ticket.cuh"

namespace capstan::gpu {
namespace {

constexpr int kElements = 4;  // that a thread moves at once
constexpr std::int64_t kChunk = 2 * kElements * kBlockSize;

/// Parameter i has the chunks [first[i], first[i + 1]).
struct Chunks {
  std::int32_t first[kMaxParameters + 1];
};

static_assert(sizeof(AdamArgs) + sizeof(Chunks) + sizeof(unsigned*) <= 4096);
static_assert(sizeof(SgdArgs) + sizeof(Chunks) + sizeof(unsigned*) <= 4096);

Chunks chunks_of(const ParameterList& list) {
  Chunks chunks{};
  for (int i = 0; i < list.count; ++i) {
    chunks.first[i + 1] =
        chunks.first[i] + static_cast<std::int32_t>(ceil_div(list.entries[i].numel, kChunk));
  }
  return chunks;
}

/// Which states the parameters have.
struct Present {
  bool state1, state2, state3;
};

/// The rule of SgdArgs with its numbers read.
template <typename T>
struct Sgd {
  using Args = SgdArgs;
  T lr, momentum, weight_decay;
  T take;  // 1 - dampening, 1 in the first step
  bool nesterov, maximize;

  __device__ static Sgd read(const SgdArgs& args) {
    return {static_cast<T>(args.hyper[0]),
            static_cast<T>(args.hyper[1]),
            static_cast<T>(args.hyper[2]),
            *args.step == 0 ? T{1} : static_cast<T>(1.0 - args.hyper[3]),
            args.nesterov,
            args.maximize};
  }
  __device__ void update(const Present& has, T& p, T grad, T& v, T&, T&) const {
    const T d = (maximize ? -grad : grad) + weight_decay * p;
    v = has.state1 ? momentum * v + take * d : d;
    p -= lr * (nesterov ? d + momentum * v : v);
  }
};

/// The rule of AdamArgs with its numbers read.
template <typename T>
struct Adam {
  using Args = AdamArgs;
  T keep1, take1, keep2, take2, eps;
  T size;        // lr / (1 - beta1^t)
  T root_scale;  // 1 / sqrt(1 - beta2^t)
  T coupled;     // weight decay that joins the gradient
  T shrink;      // what decoupled weight decay leaves of a parameter
  bool maximize;

  __device__ static Adam read(const AdamArgs& args) {
    const double lr = args.hyper[0];
    const double beta1 = args.hyper[1];
    const double beta2 = args.hyper[2];
    const double t = static_cast<double>(*args.step + 1);
    const double decay = args.hyper[4];
    return {static_cast<T>(beta1),
            static_cast<T>(1.0 - beta1),
            static_cast<T>(beta2),
            static_cast<T>(1.0 - beta2),
            static_cast<T>(args.hyper[3]),
            static_cast<T>(lr / (1.0 - ::pow(beta1, t))),
            static_cast<T>(1.0 / ::sqrt(1.0 - ::pow(beta2, t))),
            args.decoupled ? T{0} : static_cast<T>(decay),
            args.decoupled ? static_cast<T>(1.0 - lr * decay) : T{1},
            args.maximize};
  }
  __device__ void update(const Present& has, T& p, T grad, T& m, T& v, T& w) const {
    const T g = (maximize ? -grad : grad) + coupled * p;
    m = keep1 * m + take1 * g;
    v = keep2 * v + take2 * g * g;
    if (has.state3) w = v > w || v != v ? v : w;  // NaN wins
    p = shrink * p - size * m / (::sqrt(has.state3 ? w : v) * root_scale + eps);
  }
};

/// The rule of RmspropArgs with its numbers read.
template <typename T>
struct Rmsprop {
  using Args = RmspropArgs;
  T lr, keep, take, eps, weight_decay, momentum;
  bool maximize;

  __device__ static Rmsprop read(const RmspropArgs& args) {
    return {static_cast<T>(args.hyper[0]),
            static_cast<T>(args.hyper[1]),
            static_cast<T>(1.0 - args.hyper[1]),
            static_cast<T>(args.hyper[2]),
            static_cast<T>(args.hyper[3]),
            static_cast<T>(args.hyper[4]),
            args.maximize};
  }
  __device__ void update(const Present& has, T& p, T grad, T& s, T& a, T& b) const {
    const T g = (maximize ? -grad : grad) + weight_decay * p;
    s = keep * s + take * g * g;
    if (has.state2) a += take * (g - a);
    const T change = g / (::sqrt(has.state2 ? s - a * a : s) + eps);
    b = has.state3 ? momentum * b + change : change;
    p -= lr * b;
  }
};

/// The rule of AdagradArgs with its numbers read.
template <typename T>
struct Adagrad {
  using Args = AdagradArgs;
  T rate;  // lr / (1 + steps * lr_decay)
  T weight_decay, eps;
  bool maximize;

  __device__ static Adagrad read(const AdagradArgs& args) {
    const double steps = static_cast<double>(*args.step);
    return {static_cast<T>(args.hyper[0] / (1.0 + steps * args.hyper[1])),
            static_cast<T>(args.hyper[2]), static_cast<T>(args.hyper[3]), args.maximize};
  }
  __device__ void update(const Present&, T& p, T grad, T& s, T&, T&) const {
    const T g = (maximize ? -grad : grad) + weight_decay * p;
    s += g * g;
    p -= rate * g / (::sqrt(s) + eps);
  }
};

/// The rule of LionArgs with its numbers read.
template <typename T>
struct Lion {
  using Args = LionArgs;
  T lr, keep1, take1, keep2, take2;
  T shrink;  // what weight decay leaves of a parameter
  bool maximize;

  __device__ static Lion read(const LionArgs& args) {
    return {static_cast<T>(args.hyper[0]),
            static_cast<T>(args.hyper[1]),
            static_cast<T>(1.0 - args.hyper[1]),
            static_cast<T>(args.hyper[2]),
            static_cast<T>(1.0 - args.hyper[2]),
            static_cast<T>(1.0 - args.hyper[0] * args.hyper[3]),
            args.maximize};
  }
  __device__ void update(const Present&, T& p, T grad, T& m, T&, T&) const {
    const T g = maximize ? -grad : grad;
    const T mixed = keep1 * m + take1 * g;
    m = keep2 * m + take2 * g;
    p = shrink * p - lr * (mixed > T{0} ? T{1} : mixed < T{0} ? T{-1} : mixed);  // NaN stays NaN
  }
};

template <typename T, typename Rule>
__device__ void update_chunk(const ParameterEntry& entry, std::int64_t chunk, const Rule& rule) {
  using C = Compute<T>;
  T* p = static_cast<T*>(entry.parameter);
  const T* grad = static_cast<const T*>(entry.grad);
  T* state1 = static_cast<T*>(entry.state1);
  T* state2 = static_cast<T*>(entry.state2);
  T* state3 = static_cast<T*>(entry.state3);
  const Present has{state1 != nullptr, state2 != nullptr, state3 != nullptr};
  const bool packed =
      is_aligned_for_packs<T, kElements>(p) && is_aligned_for_packs<T, kElements>(grad) &&
      is_aligned_for_packs<T, kElements>(state1) && is_aligned_for_packs<T, kElements>(state2) &&
      is_aligned_for_packs<T, kElements>(state3);
  const std::int64_t end = min((chunk + 1) * kChunk, entry.numel);
  for (std::int64_t i = chunk * kChunk + threadIdx.x * kElements; i < end;
       i += kBlockSize * kElements) {
    Pack<T, kElements> p_pack = load_pack<kElements>(p, i, end, packed);
    const Pack<T, kElements> grad_pack = load_pack<kElements>(grad, i, end, packed);
    Pack<T, kElements> pack1 = load_pack<kElements>(state1, i, end, packed);
    Pack<T, kElements> pack2 = load_pack<kElements>(state2, i, end, packed);
    Pack<T, kElements> pack3 = load_pack<kElements>(state3, i, end, packed);
#pragma unroll
    for (int k = 0; k < kElements; ++k) {
      C parameter = p_pack.value[k];
      C first = pack1.value[k];
      C second = pack2.value[k];
      C third = pack3.value[k];
      rule.update(has, parameter, static_cast<C>(grad_pack.value[k]), first, second, third);
      p_pack.value[k] = static_cast<T>(parameter);
      pack1.value[k] = static_cast<T>(first);
      pack2.value[k] = static_cast<T>(second);
      pack3.value[k] = static_cast<T>(third);
    }
    store_pack<kElements>(p, i, end, packed, p_pack);
    store_pack<kElements>(state1, i, end, packed, pack1);
    store_pack<kElements>(state2, i, end, packed, pack2);
    store_pack<kElements>(state3, i, end, packed, pack3);
  }
}

// Launch: <<<max(number of chunks, 1), kBlockSize>>>; a block for each chunk. `ticket` is used only
// if the step is to be counted.
template <typename T, typename Rule>
__global__ void __launch_bounds__(kBlockSize)
    step_kernel(const __grid_constant__ typename Rule::Args args,
                const __grid_constant__ Chunks chunks, unsigned* ticket) {
  if (args.list.skip != nullptr && *args.list.skip != 0.0F) return;
  __shared__ Rule shared_rule;
  if (threadIdx.x == 0) shared_rule = Rule::read(args);
  __syncthreads();
  const Rule rule = shared_rule;

  const int count = args.list.count;
  const auto chunk = static_cast<std::int32_t>(blockIdx.x);
  if (chunk < chunks.first[count]) {
    int low = 0;
    int high = count;  // first[low] <= chunk < first[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (chunks.first[middle] <= chunk ? low : high) = middle;
    }
    update_chunk<T>(args.list.entries[low], chunk - chunks.first[low], rule);
  }

  if (args.list.advance_step && is_last_block(ticket) && threadIdx.x == 0) *args.step += 1;
}

template <template <typename> typename Rule, typename Args>
void launch(const Args& args, const char* name, StreamState& stream) {
  const Chunks chunks = chunks_of(args.list);
  const auto blocks = static_cast<unsigned>(std::max(chunks.first[args.list.count], 1));
  unsigned* const ticket = args.list.advance_step ? scratch(stream, 0).ticket : nullptr;
  visit_floating(args.dtype, name, [&]<typename T>() {
    step_kernel<T, Rule<Compute<T>>>
        <<<blocks, kBlockSize, 0, native_stream(stream)>>>(args, chunks, ticket);
    CAPSTAN_CHECK_LAUNCH(step_kernel);
  });
}

}  // namespace

void sgd(const SgdArgs& args, StreamState& stream) { launch<Sgd>(args, "sgd", stream); }

void adam(const AdamArgs& args, StreamState& stream) { launch<Adam>(args, "adam", stream); }

void rmsprop(const RmspropArgs& args, StreamState& stream) {
  launch<Rmsprop>(args, "rmsprop", stream);
}

void adagrad(const AdagradArgs& args, StreamState& stream) {
  launch<Adagrad>(args, "adagrad", stream);
}

void lion(const LionArgs& args, StreamState& stream) { launch<Lion>(args, "lion", stream); }

}  // namespace capstan::gpu

#include "framework/core/error.h"
#include "ops/conv_kernels.h"
#include "ops/kernels.h"
#include "ops/norm_kernels.h"
#include "ops/pool_kernels.h"

namespace capstan::gpu {
namespace {

[[noreturn]] void refuse(const char* name) {
  throw DeviceError(
      detail::concat(name, ": this build has no CUDA; configure with -Dcuda=enabled"));
}

}  // namespace

void unary(const UnaryArgs&, StreamState&) { refuse("unary"); }
void binary(const BinaryArgs&, StreamState&) { refuse("binary"); }
void where(const WhereArgs&, StreamState&) { refuse("where"); }
void fill(const FillArgs&, StreamState&) { refuse("fill"); }
void arange(const ArangeArgs&, StreamState&) { refuse("arange"); }
void reduce(const ReduceArgs&, StreamState&) { refuse("reduce"); }
void argmax(const ArgmaxArgs&, StreamState&) { refuse("argmax"); }
void matmul(const MatmulArgs&, StreamState&) { refuse("matmul"); }
void softmax(const SoftmaxArgs&, StreamState&) { refuse("softmax"); }
void softmax_backward(const SoftmaxBackwardArgs&, StreamState&) { refuse("softmax_backward"); }
void cross_entropy(const CrossEntropyArgs&, StreamState&) { refuse("cross_entropy"); }
void cross_entropy_backward(const CrossEntropyBackwardArgs&, StreamState&) {
  refuse("cross_entropy_backward");
}
void batch_stats(const BatchStatsArgs&, StreamState&) { refuse("batch_norm"); }
void batch_norm(const BatchNormArgs&, StreamState&) { refuse("batch_norm"); }
void batch_norm_backward(const BatchNormBackwardArgs&, StreamState&) {
  refuse("batch_norm_backward");
}
void conv(const ConvArgs&, StreamState&) { refuse("conv2d"); }
void conv_input_gradient(const ConvArgs&, StreamState&) { refuse("conv2d"); }
void conv_weight_gradient(const ConvArgs&, StreamState&) { refuse("conv2d"); }
void max_pool(const MaxPoolArgs&, StreamState&) { refuse("max_pool2d"); }
void max_pool_backward(const MaxPoolBackwardArgs&, StreamState&) { refuse("max_pool2d_backward"); }
void avg_pool(const AvgPoolArgs&, StreamState&) { refuse("avg_pool2d"); }
void avg_pool_backward(const AvgPoolArgs&, StreamState&) { refuse("avg_pool2d_backward"); }
void dropout(const DropoutArgs&, StreamState&) { refuse("dropout"); }
void random(const RandomArgs&, StreamState&) { refuse("random"); }
void gather(const GatherArgs&, StreamState&) { refuse("gather"); }
void gather_backward(const GatherBackwardArgs&, StreamState&) { refuse("gather_backward"); }
void one_hot(const OneHotArgs&, StreamState&) { refuse("one_hot"); }
void sgd(const SgdArgs&, StreamState&) { refuse("sgd"); }
void adam(const AdamArgs&, StreamState&) { refuse("adam"); }
void rmsprop(const RmspropArgs&, StreamState&) { refuse("rmsprop"); }
void adagrad(const AdagradArgs&, StreamState&) { refuse("adagrad"); }
void lion(const LionArgs&, StreamState&) { refuse("lion"); }

}  // namespace capstan::gpu

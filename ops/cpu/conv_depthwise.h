#pragma once

#include "ops/conv_kernels.h"

namespace capstan::cpu {

/// The functions of ops/conv_kernels.h for groups of one channel to one channel.
void conv_depthwise(const ConvArgs& args);
void conv_depthwise_input_gradient(const ConvArgs& args);
void conv_depthwise_weight_gradient(const ConvArgs& args);

}  // namespace capstan::cpu

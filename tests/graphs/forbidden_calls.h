#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/data/data_loader.h"
#include "framework/random/generator.h"
#include "framework/runtime/event.h"
#include "framework/runtime/forbidden.h"
#include "graphs/captured_step.h"
#include "graphs/graph.h"
#include "graphs/graphed_callable.h"
#include "nn/linear.h"
#include "nn/optim/adam.h"
#include "nn/optim/clip.h"
#include "nn/optim/ema.h"
#include "nn/optim/grad_scaler.h"
#include "nn/optim/scheduler.h"
#include "nn/optim/sgd.h"

namespace capstan::testing {

/// Something to call every entry point of the table of refusals on.
struct ForbiddenCalls {
  /// One entry point: how to call it, and what the refusal says.
  struct Row {
    Forbidden call;
    std::string operation;
    std::string why;
    std::function<void(Where)> make;
  };

  explicit ForbiddenCalls(Device place);

  /// One for each entry point, or more.
  [[nodiscard]] std::vector<Row> rows();

  Device device;
  Tensor x;
  Tensor wide;
  Tensor added;
  Tensor clipped;
  Event start;
  Event end;
  Generator generator;
  nn::Linear layer;
  nn::SGD sgd;
  nn::Adam adam;
  nn::StepLR scheduler;
  nn::EMA ema;
  nn::GradScaler scaler;
  DataLoader loader;
  GraphPool pool;
  Graph other;
  CapturedStep step;
};

/// The text of the CaptureError that `call` throws; empty if it throws none.
[[nodiscard]] std::string refusal(const std::function<void()>& call);
/// "FILE:LINE"
[[nodiscard]] std::string place_of(const Where& where);

}  // namespace capstan::testing

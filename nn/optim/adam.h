#pragma once

#include "nn/optim/optimizer.h"

namespace capstan::nn {

struct AdamOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool amsgrad = false;
  bool maximize = false;
};

/// Adam (Kingma and Ba 2015); weight decay is added to the gradient. `amsgrad` divides by the
/// largest second moment so far (Reddi et al. 2018). See AdamArgs for the rule. Options: "lr",
/// "beta1", "beta2", "eps", "weight_decay".
class Adam : public Optimizer {
 public:
  /// @throws ValueError  on a value out of its domain.
  explicit Adam(std::vector<Tensor> parameters, AdamOptions options = {},
                Where where = Where::current());
  /// See SGD::add_param_group.
  void add_param_group(const std::vector<Tensor>& parameters, AdamOptions options,
                       Where where = Where::current());
  /// Of all groups. @throws ValueError  as the constructor; CaptureError while capturing. So do the
  /// next two.
  void set_betas(double beta1, double beta2, Where where = Where::current());
  void set_eps(double value, Where where = Where::current());
  void set_weight_decay(double value, Where where = Where::current());

 protected:
  /// `decoupled` weight decay makes it AdamW.
  Adam(const std::vector<Tensor>& parameters, AdamOptions options, bool decoupled,
       const Where& where);

 private:
  struct Flags {
    bool maximize;
  };

  void update(std::size_t group, const std::vector<ops::ParameterSlot>& slots,
              const ops::StepControl& control) override;

  const bool decoupled_;
  std::vector<Flags> flags_;  // of each group
};

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;
};

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
class AdamW final : public Adam {
 public:
  explicit AdamW(std::vector<Tensor> parameters, AdamWOptions options = {},
                 Where where = Where::current());
  void add_param_group(const std::vector<Tensor>& parameters, AdamWOptions options,
                       Where where = Where::current());
};

}  // namespace capstan::nn

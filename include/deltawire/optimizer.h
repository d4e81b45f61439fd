// Optimizers: the seven of GComp's table 2, each with a dense step, a step for key-value gradients, and its
// significance: how much of a gradient the coming step can still see.
//
// The steps are PyTorch's (torch.optim.SGD, Adagrad, RMSprop, Adam, AdamW), which the table refers to, in
// float32 with the operations in a fixed order: the same input gives the same bits on every machine, so
// replicas that apply the same mean stay bit-equal.
//
// Source: X. Li et al., "Near-Lossless Gradient Compression for Data-Parallel Distributed DNN Training"
// (GComp), SoCC 2024, section 5.1, table 2, appendix A; departures in docs/reference/errata.md. The names
// next to the settings are the paper's: eta, lambda, mu, tau, alpha, beta, epsilon, lambda_lr.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/export.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

// The numbers are pinned: saved states contain them.
enum class OptimizerKind : std::uint8_t {
  kSgd = 1,
  kMomentum = 2,
  kNesterov = 3,
  kAdaGrad = 4,
  kRmsProp = 5,
  kAdam = 6,   // weight decay is added to the gradient
  kAdamW = 7,  // weight decay shrinks the parameter
};

// Whether an optimizer keeps a first moment (a momentum: b, m) or a second one (of squares: r, v).
DELTAWIRE_API bool has_first_moment(OptimizerKind kind) noexcept;
DELTAWIRE_API bool has_second_moment(OptimizerKind kind) noexcept;

// Settings that are not parameters of the kind's spec are ignored. g is the gradient, after weight decay if
// that is added to it.
struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::kSgd;
  double learning_rate = 1e-3;     // eta, >= 0
  double weight_decay = 0;         // lambda, >= 0
  double momentum = 0;             // mu, >= 0: b = mu b + (1 - tau) g
  double dampening = 0;            // tau, kMomentum alone; not in the first step, where b = g
  double alpha = 0;                // RMSProp, 0 ... 1: v = alpha v + (1 - alpha) g^2
  double beta1 = 0;                // Adam, AdamW, 0 <= beta1 < 1: m = beta1 m + (1 - beta1) g
  double beta2 = 0;                // Adam, AdamW, 0 <= beta2 < 1: v = beta2 v + (1 - beta2) g^2
  double eps = 0;                  // epsilon, >= 0, added to the square root of the second moment
  double lr_decay = 0;             // lambda_lr, AdaGrad, >= 0: eta / (1 + (t - 1) lambda_lr) in step t
  double initial_accumulator = 0;  // AdaGrad, >= 0: r before the first step

  bool operator==(const OptimizerSettings&) const = default;
};

// Settings from "name" or "name:key=value,key=value"; others have PyTorch's default (momentum 0.9).
//   sgd       lr=0.001, weight_decay=0
//   momentum  lr=0.001, momentum=0.9, dampening=0, weight_decay=0
//   nesterov  lr=0.001, momentum=0.9, weight_decay=0
//   adagrad   lr=0.01, lr_decay=0, eps=1e-10, initial_accumulator=0, weight_decay=0
//   rmsprop   lr=0.01, alpha=0.99, eps=1e-08, weight_decay=0
//   adam      lr=0.001, beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0
//   adamw     the same with weight_decay=0.01
// Errors: kInvalidArgument for another name (lists the known ones), another key (lists the optimizer's), or a
// value out of range (says the range).
DELTAWIRE_API Result<OptimizerSettings> parse_optimizer(std::string_view spec);

// The canonical spec, every parameter spelled out, e.g. "sgd:lr=0.1,weight_decay=0".
DELTAWIRE_API std::string optimizer_spec(const OptimizerSettings& settings);

// kInvalidArgument if a setting of the kind is out of range; names it.
DELTAWIRE_API Status check_settings(const OptimizerSettings& settings);

// The state of one tensor after `steps` steps. Each moment is empty (not there yet, or not of this kind) or
// has the tensor's count.
struct MomentsView {
  std::uint64_t steps = 0;
  std::span<const float> first;   // b or m
  std::span<const float> second;  // r or v, without bias correction
};

// Writes to out[i] the numerator of GComp's quantization metric delta (table 2) for the coming step, number
// t = moments.steps + 1: delta = out[i] / gradient[i], whose sign means nothing. Where |out[i]| > 2^n
// |gradient[i]|, the lowest n bits of the gradient fall off the end of the addition that updates
// parameters[i]. All moments are those of step t - 1: the table's are of step t, which contain the gradient
// that isn't reduced yet; those of t - 1 are known, and equal, on every rank. Per kind, with theta the
// parameter:
//   SGD, and the first step of Momentum (b = g there)         theta / eta - lambda theta
//   Momentum   (theta - eta mu b) / (eta (1 - tau)) - lambda theta
//   Nesterov   ((1 - eta lambda (1 + mu)) theta - eta mu^2 b) / (eta (1 + mu))
//   AdaGrad    theta (sqrt(r) + eps) / eta_t - lambda theta,  eta_t = eta / (1 + (t - 1) lambda_lr)
//   RMSProp    theta (sqrt(v) + eps) / eta - lambda theta
//   Adam       (theta (sqrt(v^) + eps) (1 - beta1^t) - eta beta1 m) / (eta (1 - beta1)) - lambda theta
//   AdamW      (theta (1 - eta lambda) (sqrt(v^) + eps) (1 - beta1^t) - eta beta1 m) / (eta (1 - beta1))
// with v^ = v / (1 - beta2^(t-1)). PyTorch's `maximize` and `amsgrad` (give the running maximum as `second`)
// change none of these.
//
// It is 0, so that nothing may be cut, where the metric isn't defined: if the second moment is missing or 0
// (before the first step, and for an element whose gradients were all 0: the gradient itself would set the
// step's size), if eta = 0 or tau = 1 (the gradient has no effect now, but the moments keep it for later),
// and if the result isn't finite.
//
// Spans hold float32, `out` has the parameters' count and overlaps nothing. Errors: kInvalidArgument for
// settings out of range, a moment with another count or of another kind of optimizer, or one of Adam's two
// moments without the other. Allocates nothing on success. Thread rule: any thread.
DELTAWIRE_API Status significance(const OptimizerSettings& settings, std::span<const float> parameters,
                                  const MomentsView& moments, std::span<float> out);

// The coefficients of `significance`, for a program whose moments are on a device: with every product, root
// and sum rounded to float32 by itself, out[i] is
//   parameter * (plain + root * sqrt(second)) + momentum * first
// where that is finite and `second`, if there is one, is above 0; elsewhere 0. The term of a missing moment
// is left out. Without `is_defined` all values are 0.
struct SignificanceCoefficients {
  float plain = 0;
  float root = 0;
  float momentum = 0;
  bool is_defined = false;
};

// For step number `steps` + 1 of a tensor that has these moments. Errors: kInvalidArgument for settings out
// of range. Thread rule: any thread.
DELTAWIRE_API Result<SignificanceCoefficients> significance_coefficients(const OptimizerSettings& settings,
                                                                         std::uint64_t steps, bool has_first,
                                                                         bool has_second);

struct FactoredStep;  // of parameter servers

// Keeps the state of any number of named tensors and steps them; the caller owns the parameters.
//
// A step with key-value gradients is lazy, as torch.optim.SparseAdam's: an element without a key stays
// unchanged, moments included. No weight decay shrinks it, no momentum moves it, its moments don't decay; but
// the tensor's step count t, which Adam's bias corrections and AdaGrad's lr_decay use, grows as in a dense
// step. If every key is present, the two kinds of step are equal bit for bit. For SGD and AdaGrad without
// weight decay an absent key is equivalent to a gradient of 0.
//
// Thread rule: one thread at a time.
class DELTAWIRE_API Optimizer {
 public:
  const OptimizerSettings& settings() const noexcept { return settings_; }
  std::string spec() const { return optimizer_spec(settings_); }

  // For schedules: the rate of later steps. kInvalidArgument if it is below 0 or not finite.
  Status set_learning_rate(double learning_rate);

  // One step of the tensor. Both spans have the tensor's count, the same in every step. A tensor's first step
  // creates its moments. Errors, which change nothing: kInvalidArgument (a count that differs).
  Status step(std::string_view tensor, std::span<float> parameters, std::span<const float> gradient);

  // The same for a key-value gradient: values[i] belongs to parameters[keys[i]]. Errors as above, and
  // kInvalidArgument for keys that don't grow strictly or lie beyond the parameters.
  Status step(std::string_view tensor, std::span<float> parameters, std::span<const std::uint32_t> keys,
              std::span<const float> values);
  Status step(std::string_view tensor, std::span<float> parameters, const Pairs& gradient);

  // The first of these by other settings of the same kind, as a rule of deltawire/optimizer_rules.h has them
  // for the step (settings_by); with `factored`, Adam or AdamW by its second moment.
  Status step_by(const OptimizerSettings& settings, std::string_view tensor, std::span<float> parameters,
                 std::span<const float> gradient, const FactoredStep* factored = nullptr);

  // deltawire::significance with the tensor's moments, for its next step.
  Status significance(std::string_view tensor, std::span<const float> parameters, std::span<float> out) const;

  // The tensor's state; 0 steps and empty moments before its first step. Valid until its next step.
  MomentsView moments(std::string_view tensor) const;

  // The first moment, to be masked after a sparse exchange (Channel::mask_sent); empty if there is none.
  std::span<float> momentum(std::string_view tensor);

  // Saves all moments and step counts as bytes (docs/reference/format.md, "Optimizer state"), and loads them.
  // Settings are not included. load replaces everything or, on error (kTruncated, kCorrupt,
  // kUnsupportedVersion, kMismatch for another kind's state), nothing.
  std::vector<std::byte> save() const;
  Status load(Bytes state);

 private:
  friend Result<Optimizer> make_optimizer(const OptimizerSettings& settings);

  struct TensorState {
    std::uint64_t steps = 0;
    std::uint64_t count = 0;
    std::vector<float> first;
    std::vector<float> second;
  };

  explicit Optimizer(const OptimizerSettings& settings) : settings_(settings) {}
  Result<TensorState*> state_for(std::string_view tensor, std::uint64_t count);

  OptimizerSettings settings_;
  std::map<std::string, TensorState, std::less<>> states_;
};

// Errors: those of check_settings, or of parse_optimizer.
DELTAWIRE_API Result<Optimizer> make_optimizer(const OptimizerSettings& settings);
DELTAWIRE_API Result<Optimizer> make_optimizer(std::string_view spec);

// Raises significances to those of parameters that are kept in 16 bits and nowhere else: a step rounds them
// to nearest, which hides more of a gradient than float32's addition. They have 16 fewer bits as bfloat16, 13
// as float16, so that |out| becomes 2^16 or 2^13 times as large, Inf at most; of kF32 it stays. The bits that
// gcomp cuts by it move a parameter by less than two units in the last place of its 16 bits before the step
// rounds it, just as without it they move one by less than two of float32's. Moments lose the cut bits, too:
// up to a third of a gradient of which only the exponent is left. Not for parameters with a float32 copy (a
// "master"), which accumulates what a step's rounding hides. Thread rule: any thread.
DELTAWIRE_API void count_rounding_to(DType parameters, std::span<float> significance) noexcept;

}  // namespace deltawire

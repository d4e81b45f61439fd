// What ranks send each other during training: compressed gradients, and a few exact numbers.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/result.h"
#include "deltawire/session.h"
#include "deltawire/tensor.h"
#include "deltawire/transport.h"
#include "linear/all_to_all.h"
#include "linear/pair_residual.h"

namespace deltawire::linear {

// The spec of an exchange in which weights live at owners: "owners(fastsgd)", "owners(fastsgd back bf16)".
struct OwnerSpec {
  std::string gradients;         // the codec of gradients sent to owners
  std::string weights = "fp32";  // the codec of weights sent back

  std::string text() const;
};

bool names_owners(std::string_view spec) noexcept;

// Makes the codecs canonical. REQUIRES: names_owners(spec). Errors: kInvalidArgument for unknown codecs, for
// gradient codecs with error feedback, since every step has other keys, and for sparse weight codecs.
Result<OwnerSpec> parse_owner_spec(std::string_view spec);

// The name of the gradient tensor, for the rules of codecs.
inline constexpr std::string_view kGradientName = "weights";

// kInvalidArgument for specs that Exchange::open() would refuse.
Status check_exchange_spec(const std::string& spec);

// Whether Exchange::keep_losses() works with a spec, which is not empty. kInvalidArgument for one that is
// lossless, takes no pairs, has error feedback itself, or encodes the mean of pairs again (`direct`), which
// leaves errors that no rank owns.
Status check_feedback(const std::string& spec);

class Exchange {
 public:
  // `spec` is that of a reducer, kPlainPairs, or an OwnerSpec's text. `timeout` limits each wait for other
  // ranks. With an empty spec, call start() before anything that involves gradients. Errors: those of
  // Session::open.
  static Result<std::unique_ptr<Exchange>> open(const std::string& spec, std::unique_ptr<Transport> transport,
                                                std::uint64_t seed, std::chrono::milliseconds timeout);

  // `spec` as in open(). Once. Errors: those of Session::open.
  Status start(const std::string& spec);

  // Turns on error feedback for pairs: what the codec leaves out of this rank's gradient is kept, and added
  // to the next values at the same keys. After start(). Errors: kInvalidArgument for what check_feedback
  // refuses.
  Status keep_losses();

  // The residual of this rank; null without keep_losses().
  PairResidual* residual() noexcept { return feedback_ ? &feedback_->residual : nullptr; }

  int rank() const noexcept { return rank_; }
  int world() const noexcept { return world_; }
  std::string spec() const;
  std::uint64_t seed() const noexcept { return seed_; }

  // Set if weights live at owners (OwnedWeights). average() must not be called then.
  const std::optional<OwnerSpec>& owners() const noexcept { return owners_; }

  // Replaces the gradient with the mean over ranks, sent as pairs of key and value if the codec takes them,
  // else as a dense tensor. With one rank nothing is sent or encoded. Keys grow strictly, before and after.
  // Errors: those of Session::all_reduce.
  Result<Report> average(Pairs& gradient);
  bool takes_pairs(std::uint64_t dimension);

  // The numbers of all ranks, in rank order; every rank passes as many. Between steps. Errors: those of
  // Transport::wait.
  Result<std::vector<double>> gather(std::span<const double> numbers);

  // The sums of the numbers over all ranks, added in rank order.
  Result<std::vector<double>> sums(std::span<const double> numbers);

  // Messages of any kind, between steps. Errors: those of Transport::wait.
  Result<std::vector<std::uint64_t>> all_to_all(const PeerMessages& messages);

  // Counts a step that was made without average().
  void count_step() noexcept { ++step_; }

  // Saves what the session keeps from step to step (Session::save), and restores it with the number of steps
  // made so far. residual() is saved apart, and empty after load(). Between steps. Errors: those of
  // Session's.
  Result<std::vector<std::byte>> save() { return session_->save(); }
  Status load(Bytes state, std::uint64_t steps) {
    step_ = steps;
    if (feedback_) feedback_->residual.clear();
    return session_->load(state);
  }
  std::uint64_t steps() const noexcept { return step_; }

  void abort(std::string_view reason);
  void close() {
    if (session_) session_->close();
  }

 private:
  Exchange() = default;

  struct Feedback {
    PairResidual residual;
    std::unique_ptr<Channel>
        coder;  // encodes messages a second time, to find what they leave out; none with owners
    Pairs sent;
  };

  Result<Report> average_pairs(Pairs& gradient, const Step& step);
  Status note_losses(const Named& sent, std::uint64_t step);

  std::unique_ptr<Transport> unopened_;  // until start() gives it to the session
  std::unique_ptr<Session> session_;
  Transport* transport_ = nullptr;  // the session's, or unopened_
  int rank_ = 0;
  int world_ = 1;
  bool plain_ = false;
  std::optional<OwnerSpec> owners_;
  std::chrono::milliseconds timeout_{};
  std::uint64_t seed_ = 0;
  std::uint64_t step_ = 0;
  std::uint64_t next_tag_ = 0;  // of all_to_all()
  std::vector<float> dense_;
  std::optional<Feedback> feedback_;  // with keep_losses()
};

}  // namespace deltawire::linear

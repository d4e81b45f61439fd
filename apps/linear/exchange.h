// What ranks tell each other while they train: gradients, compressed, and a few numbers, exact.
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
#include "deltawire/session.h"
#include "deltawire/tensor.h"
#include "deltawire/transport.h"
#include "linear/owner_spec.h"
#include "linear/pair_residual.h"
#include "linear/trade.h"

namespace deltawire::linear {

// The tensor that gradients are, for codecs' rules.
inline constexpr std::string_view kGradientName = "weights";

class Exchange {
 public:
  // `spec` is a reducer's, kPlainPairs, or an OwnerSpec's. `timeout` is of each wait for other ranks. With an
  // empty spec start() must come before all that has to do with gradients. Errors: those of Session::open.
  static Result<std::unique_ptr<Exchange>> open(const std::string& spec, std::unique_ptr<Transport> transport,
                                                std::uint64_t seed, std::chrono::milliseconds timeout);

  // `spec` as in open(). Once. Errors: those of Session::open.
  Status start(const std::string& spec);

  // From now on what the codec leaves out of this rank's gradient waits, as pairs, and goes with the next
  // values at the same keys. After start(). Errors:
  // kInvalidArgument for what check_feedback refuses.
  Status keep_losses();

  // For a spec of open(), not empty. kInvalidArgument for one that leaves nothing out, takes no pairs, keeps
  // itself what it leaves out, or codes the mean of pairs once more (`direct`), of which no rank keeps a
  // part.
  static Status check_feedback(const std::string& spec);

  // What waits here; null without keep_losses().
  PairResidual* residual() noexcept { return keeps_losses_ ? &residual_ : nullptr; }

  int rank() const noexcept { return rank_; }
  int world() const noexcept { return world_; }
  std::string spec() const;
  std::uint64_t seed() const noexcept { return seed_; }

  // Where weights live at owners (OwnedWeights): average() is then not to be called.
  const std::optional<OwnerSpec>& owners() const noexcept { return owners_; }

  // kInvalidArgument for what open() would refuse as a spec.
  static Status check_spec(const std::string& spec);

  // Puts the mean over ranks in the gradient's place, as pairs of key and value where the codec takes such,
  // else by way of a dense tensor. One rank's gradient stays as it is: nothing is sent, and no codec cuts it.
  // Keys grow strictly, before and after. Errors: those of
  // Session::all_reduce; kRange, on all ranks, where one is refused (refuse_large).
  Result<Report> average(Pairs& gradient);
  bool takes_pairs(std::uint64_t dimension);

  // From now on average(), or who asks for it, asks all ranks first, in a message more to each, whether their
  // gradients are finite and below 1e18, and refuses the step on all of them where one isn't: training has
  // left the numbers, and the exchange, which such values would end, goes on. Alike on all ranks.
  void refuse_large(bool refuses) noexcept { refuses_large_ = refuses; }
  Status check_size(const Pairs& gradient);

  // All ranks' numbers, in rank order; every rank gives as many. Between steps. Errors: those of
  // Transport::wait.
  Result<std::vector<double>> gather(std::span<const double> numbers);

  // Sums of the numbers over all ranks, in rank order.
  Result<std::vector<double>> sums(std::span<const double> numbers);

  // Messages of any kind, between steps. Errors: those of Transport::wait.
  Result<std::vector<std::uint64_t>> trade(const Parcels& parcels);

  // A step that was made without average().
  void count_step() noexcept { ++step_; }

  // What the session keeps from step to step (Session::save), and back with the number of steps that it is
  // after; residual() is apart from that, and empty then. Between steps. Errors: those of Session's.
  Result<std::vector<std::byte>> save() { return session_->save(); }
  Status load(Bytes state, std::uint64_t steps) {
    step_ = steps;
    residual_.clear();
    return session_->load(state);
  }
  std::uint64_t steps() const noexcept { return step_; }

  void abort(std::string_view reason);
  void close() {
    if (session_) session_->close();
  }

 private:
  Exchange() = default;

  Result<Report> average_pairs(Pairs& gradient, const Step& step);
  Status note_losses(const Named& sent, std::uint64_t step);

  std::unique_ptr<Transport> waiting_;  // until there is a session
  std::unique_ptr<Session> session_;
  Transport* transport_ = nullptr;  // the session's, or the one that waits
  int rank_ = 0;
  int world_ = 1;
  bool plain_ = false;
  std::optional<OwnerSpec> owners_;
  std::chrono::milliseconds timeout_{};
  std::uint64_t seed_ = 0;
  std::uint64_t step_ = 0;
  bool refuses_large_ = false;
  std::uint64_t traded_ = 0;
  std::vector<float> dense_;
  bool keeps_losses_ = false;
  PairResidual residual_;
  std::unique_ptr<Channel> coder_;  // makes the bytes of a message once more, to see what is not in it
  Pairs sent_;
};

}  // namespace deltawire::linear

// What ranks send each other during training: compressed gradients, and a few exact numbers.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/result.h"
#include "deltawire/session.h"
#include "deltawire/tensor.h"
#include "deltawire/transport.h"
#include "linear/plain_pairs.h"

namespace deltawire::linear {

// The name of the gradient tensor, for the rules of codecs.
inline constexpr std::string_view kGradientName = "weights";

// kInvalidArgument for specs that Exchange::open() would refuse.
Status check_exchange_spec(const std::string& spec);

class Exchange {
 public:
  // `spec` is that of a reducer, or kPlainPairs. `timeout` limits each wait for other ranks. Errors: those of
  // Session::open.
  static Result<std::unique_ptr<Exchange>> open(const std::string& spec, std::unique_ptr<Transport> transport,
                                                std::uint64_t seed, std::chrono::milliseconds timeout);

  int rank() const noexcept { return rank_; }
  int world() const noexcept { return world_; }
  std::string spec() const;

  // Replaces the gradient with the mean over ranks, sent as pairs of key and value if the codec takes them,
  // else as a dense tensor. With one rank nothing is sent or encoded. Keys grow strictly, before and after.
  // Errors: those of Session::all_reduce.
  Result<Report> average(Pairs& gradient);

  // The numbers of all ranks, in rank order; every rank passes as many. Between steps. Errors: those of
  // Transport::wait.
  Result<std::vector<double>> gather(std::span<const double> numbers);

  // The sums of the numbers over all ranks, added in rank order.
  Result<std::vector<double>> sums(std::span<const double> numbers);

  void abort(std::string_view reason) { session_->abort(reason); }
  void close() { session_->close(); }

 private:
  Exchange() = default;

  bool takes_pairs(std::uint64_t dimension);
  Result<Report> average_pairs(Pairs& gradient, const Step& step);

  std::unique_ptr<Session> session_;
  Transport* transport_ = nullptr;  // the session's
  int rank_ = 0;
  int world_ = 1;
  bool plain_ = false;
  std::chrono::milliseconds timeout_{};
  std::uint64_t step_ = 0;
  std::uint64_t next_tag_ = 0;  // of gather()
  std::vector<float> dense_;
};

}  // namespace deltawire::linear

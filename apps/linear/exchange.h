// What ranks send each other during training: compressed gradients, and a few exact numbers.
#pragma once

#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/byte_writer.h"
#include "base/errors.h"
#include "deltawire/reducer.h"
#include "deltawire/result.h"
#include "deltawire/session.h"
#include "deltawire/tensor.h"
#include "deltawire/transport.h"
#include "linear/plain_pairs.h"

namespace deltawire::linear {

// The name of the gradient tensor, for the rules of codecs.
inline constexpr std::string_view kGradientName = "weights";

// Plain pairs use the session only to fail and to close together.
inline std::string session_spec(const std::string& spec) {
  return spec == kPlainPairs ? "gather(fp32)" : spec;
}

// kInvalidArgument for specs that Exchange::open() would refuse.
inline Status check_exchange_spec(const std::string& spec) {
  const auto made = make_reducer(session_spec(spec));
  return made ? Status() : forward_error(made);
}

class Exchange {
 public:
  // `spec` is that of a reducer, or kPlainPairs. `timeout` limits each wait for other ranks. Errors: those of
  // Session::open.
  static Result<std::unique_ptr<Exchange>> open(const std::string& spec, std::unique_ptr<Transport> transport,
                                                std::uint64_t seed, std::chrono::milliseconds timeout) {
    std::unique_ptr<Exchange> exchange(new Exchange());
    exchange->transport_ = transport.get();
    exchange->rank_ = transport->rank();
    exchange->world_ = transport->world_size();
    exchange->timeout_ = timeout;
    exchange->plain_ = spec == kPlainPairs;
    const ReducerOptions options{.policy = {}, .threads = 1, .seed = seed};
    ASSIGN_OR_RETURN(exchange->session_, Session::open(session_spec(spec), options, std::move(transport)));
    return exchange;
  }

  int rank() const noexcept { return rank_; }
  int world() const noexcept { return world_; }

  std::string spec() const { return plain_ ? std::string(kPlainPairs) : session_->spec(); }

  // Replaces the gradient with the mean over ranks, sent as pairs of key and value if the codec takes them,
  // else as a dense tensor. With one rank nothing is sent or encoded. Keys grow strictly, before and after.
  // Errors: those of Session::all_reduce.
  Result<Report> average(Pairs& gradient) {
    if (world_ == 1) {
      ++step_;
      return Report();
    }
    if (plain_) {
      ASSIGN_OR_RETURN(const auto counts,
                       gather(std::vector<double>{static_cast<double>(gradient.keys.size())}));
      return average_plain_pairs(*transport_, counts, kPairsTag + step_++, Clock::now() + timeout_, gradient);
    }
    const Step step{.number = step_};
    const bool as_pairs = takes_pairs(gradient.dimension);
    ++step_;
    if (as_pairs) return average_pairs(gradient, step);
    Named tensor{.name = kGradientName, .tensor = {}};
    dense_.assign(gradient.dimension, 0.0F);
    for (std::size_t i = 0; i < gradient.keys.size(); ++i) dense_[gradient.keys[i]] = gradient.values[i];
    tensor.tensor = {.values = dense_.data(), .count = dense_.size()};
    Result<Report> report = session_->all_reduce(Bucket(std::span(&tensor, 1)), step, timeout_);
    gradient.keys.clear();
    gradient.values.clear();
    for (std::size_t key = 0; report && key < dense_.size(); ++key) {
      if (dense_[key] == 0) continue;
      gradient.keys.push_back(static_cast<std::uint32_t>(key));
      gradient.values.push_back(dense_[key]);
    }
    return report;
  }

  // The numbers of all ranks, in rank order; every rank passes as many. Between steps. Errors: those of
  // Transport::wait.
  Result<std::vector<double>> gather(std::span<const double> numbers) {
    const std::size_t bytes = 8 * numbers.size();
    std::vector<std::byte> all(bytes * static_cast<std::size_t>(world_));
    const auto slot = [&](int rank) {
      return std::span(all).subspan(bytes * static_cast<std::size_t>(rank), bytes);
    };
    ByteWriter writer(slot(rank_));
    for (const double number : numbers) writer.number(std::bit_cast<std::uint64_t>(number));
    const Bytes own = slot(rank_);
    std::vector<MutBytes> receive;
    for (int peer = 0; peer < world_; ++peer) receive.push_back(slot(peer));
    ASSIGN_OR_RETURN(const auto got, all_to_all(*transport_, kGatherTag + next_tag_++,
                                                Clock::now() + timeout_, {&own, 1}, receive));
    for (int peer = 0; peer < world_; ++peer) {
      if (peer != rank_ && got[static_cast<std::size_t>(peer)] != bytes) {
        return mismatch("another rank sent other numbers; start all from one program");
      }
    }
    std::vector<double> values(all.size() / 8);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = std::bit_cast<double>(load_le<std::uint64_t>(all.data() + 8 * i));
    }
    return values;
  }

  // The sums of the numbers over all ranks, added in rank order.
  Result<std::vector<double>> sums(std::span<const double> numbers) {
    ASSIGN_OR_RETURN(const auto all, gather(numbers));
    std::vector<double> sums(numbers.size());
    for (std::size_t i = 0; i < all.size(); ++i) sums[i % sums.size()] += all[i];
    return sums;
  }

  void abort(std::string_view reason) { session_->abort(reason); }
  void close() { session_->close(); }

 private:
  // Apart from the tags of reducers, which count up from the step (docs/reference/format.md).
  static constexpr Tag kGatherTag = Tag{0xDE17A} << 44;
  static constexpr Tag kPairsTag = Tag{0xDE17B} << 44;

  Exchange() = default;

  bool takes_pairs(std::uint64_t dimension) {
    Named tensor{.name = kGradientName, .tensor = {}};
    tensor.tensor.count = dimension;
    const auto uses = session_->explain(std::span(&tensor, 1), step_);
    return uses && !uses->empty() && uses->front().takes_pairs;
  }

  Result<Report> average_pairs(Pairs& gradient, const Step& step) {
    const Named tensor{.name = kGradientName,
                       .tensor = {.values = gradient.values.data(),
                                  .count = gradient.keys.size(),
                                  .keys = gradient.keys.data(),
                                  .dimension = gradient.dimension}};
    Pairs mean;
    Result<Report> report =
        session_->all_reduce(Bucket(std::span(&tensor, 1), std::span(&mean, 1)), step, timeout_);
    if (report) gradient = std::move(mean);
    return report;
  }

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

// Which weights a rank requests from their owners, and which it is asked for as an owner.
//
// A request is the gaps between positions at an owner, as varints, with a CRC-32C. A batch has other keys in
// each step. A list that is requested repeatedly has a number: the owner keeps the request, and a rank whose
// list has not changed sends a marker instead of its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "linear/exchange.h"
#include "reduce/patterns/key_partition.h"

namespace deltawire::linear {

// What a step, or a part of one, cost this rank.
struct StepCost {
  double encode_seconds = 0;
  double exchange_seconds = 0;
  double decode_seconds = 0;
  double update_seconds = 0;        // updating weights and state
  std::uint64_t bytes_sent = 0;     // in total
  std::uint64_t weights_bytes = 0;  // of these: weights, as an owner

  StepCost& operator+=(const StepCost& other) noexcept {
    encode_seconds += other.encode_seconds;
    exchange_seconds += other.exchange_seconds;
    decode_seconds += other.decode_seconds;
    update_seconds += other.update_seconds;
    bytes_sent += other.bytes_sent;
    weights_bytes += other.weights_bytes;
    return *this;
  }
};

// Memory: as an owner, the requests of numbered lists. Thread rule: one thread at a time.
class KeyRequests {
 public:
  using Places = std::vector<std::uint32_t>;  // positions among an owner's keys, growing

  // `exchange` outlives this.
  KeyRequests(const KeyPartition& partition, Exchange& exchange);

  // Collective: tells owners which keys each rank wants. Keys grow strictly. `list`: the small number of a
  // list that owners keep, the same on all ranks. Errors: those of the exchange; kCorrupt for an invalid
  // request; kLimit for more than kMostElements keys of one owner.
  Status ask(std::span<const std::uint32_t> keys, std::optional<std::uint32_t> list, StepCost& cost);

  // The last ask()'s requests: those of this rank to an owner, and those of a rank to this one.
  const Places& asked_of(std::size_t owner) const noexcept { return asked_of_[owner]; }
  const Places& asked_by(std::size_t rank) const noexcept { return asked_by_[rank]; }

 private:
  using Request = std::vector<std::byte>;
  // Identifies a request that was sent.
  struct Mark {
    std::size_t bytes = 0;
    std::uint32_t checksum = 0;
    bool operator==(const Mark&) const = default;
  };
  struct List {
    std::vector<Mark> sent;     // by owner
    std::vector<Request> kept;  // by rank, as the owner
  };

  static Mark mark_of(const Request& request);
  Status exchange_requests(std::span<const double> counts, const std::vector<Request>& requests, List* list);
  std::size_t world() const noexcept { return static_cast<std::size_t>(exchange_.world()); }
  std::size_t rank() const noexcept { return static_cast<std::size_t>(exchange_.rank()); }

  KeyPartition partition_;
  Exchange& exchange_;
  std::uint64_t places_;          // keys of this rank, as an owner
  std::vector<Places> asked_of_;  // by owner
  std::vector<Places> asked_by_;  // by rank
  std::vector<List> lists_;       // by number
};

}  // namespace deltawire::linear

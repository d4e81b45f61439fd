// Whose weights a rank wants from their owners, and which it is asked for as an owner.
//
// A request is the gaps between an owner's places, as varints, and their CRC-32C. A batch has other keys in
// each step. What is asked for again and again is a list with a number: an owner keeps it as it came, and a
// rank whose list hasn't changed says so, in the place of its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "linear/exchange.h"
#include "linear/owned_cost.h"
#include "reduce/patterns/key_deal.h"

namespace deltawire::linear {

// Memory: of lists with numbers, what owners were sent. Thread rule: one thread at a time.
class KeyRequests {
 public:
  using Places = std::vector<std::uint32_t>;  // of an owner's keys, in order

  // `exchange` outlives this.
  KeyRequests(const KeyDeal& deal, Exchange& exchange);

  // Collective: owners learn what each rank asks for. Keys grow strictly. `list`: of one that is kept, a
  // small number, the same on all ranks. Errors: those of the exchange; kCorrupt for requests that make no
  // sense; kLimit for more than kMostElements keys of one owner.
  Status ask(std::span<const std::uint32_t> keys, std::optional<std::uint32_t> list, OwnedCost& cost);

  // Of the last ask(): what this rank has asked of an owner, and what a rank has asked of this one.
  const Places& asked_of(std::size_t owner) const noexcept { return asked_of_[owner]; }
  const Places& asked_by(std::size_t rank) const noexcept { return asked_by_[rank]; }

 private:
  using Request = std::vector<std::byte>;
  // By which a rank knows what it has sent.
  struct Mark {
    std::size_t bytes = 0;
    std::uint32_t checksum = 0;
    bool operator==(const Mark&) const = default;
  };
  struct List {
    std::vector<Mark> sent;     // by owner
    std::vector<Request> kept;  // by rank, as their owner
  };

  static Mark mark_of(const Request& request);
  Status trade_requests(std::span<const double> counts, const std::vector<Request>& requests, List* list);
  std::size_t world() const noexcept { return static_cast<std::size_t>(exchange_.world()); }
  std::size_t rank() const noexcept { return static_cast<std::size_t>(exchange_.rank()); }

  KeyDeal deal_;
  Exchange& exchange_;
  std::uint64_t places_;          // of this rank, as an owner
  std::vector<Places> asked_of_;  // by owner
  std::vector<Places> asked_by_;  // by rank
  std::vector<List> lists_;       // by number
};

}  // namespace deltawire::linear
